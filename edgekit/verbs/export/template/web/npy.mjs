// Reads .npy files, as numpy.save writes them.
import { arrayOf } from "./edgekit.mjs";

// Fetches the file and returns a typed array for the tensor.
export async function readTensor(address, tensor) {
  const answer = await fetch(new URL(address, import.meta.url));
  if (!answer.ok) throw new Error(`${address} is not there: status ${answer.status}`);
  const bytes = await answer.arrayBuffer();
  const view = new DataView(bytes);
  const [length, start] = view.getUint8(6) === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder("latin1").decode(new Uint8Array(bytes, start, length));
  const data = bytes.slice(start + length);
  if (!header.includes("'fortran_order': False") || data.byteLength !== tensor.bytes) {
    throw new Error(`${address} is no ${tensor.dtype} of the shape ${tensor.shape}`);
  }
  return new (arrayOf(tensor.dtype))(data);
}

// Returns the values of a typed array as numbers. Half precision is stored as bits.
export function readNumbers(array, dtype) {
  if (dtype === "bfloat16") {
    return new Float32Array(Uint32Array.from(array, (bits) => bits << 16).buffer);
  }
  return dtype === "float16" ? Array.from(array, fromHalf) : Array.from(array, Number);
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}
