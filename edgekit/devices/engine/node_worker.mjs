// Runs a model in Node.js for edgekit. A message in either direction is the length of a JSON text
// (4 bytes, big endian), the text, and the bytes of the tensors whose sizes its "bytes" names.
import { readFileSync, readSync, writeSync } from "node:fs";
import { arrayOf, load } from "./edgekit.mjs";

let model;
let inputs = {};

const actions = {
  async load({ module }) {
    model = await load(readFileSync(module));
    const { inputs, outputs, steps } = model;
    return { inputs, outputs, steps };
  },
  inputs(message, payloads) {
    model.inputs.forEach((tensor, index) => {
      inputs[tensor.name] = typed(tensor, payloads[index]);
    });
    return {};
  },
  run() {
    model.setInputs(inputs);
    const nanoseconds = timed(() => model.runOnly());
    return { nanoseconds, memory: model.memoryBytes };
  },
  profile() {
    model.setInputs(inputs);
    return { nanoseconds: model.steps.map((_, index) => timed(() => model.runStep(index))) };
  },
  outputs() {
    const found = model.copyOutputs();
    return { payloads: model.outputs.map((tensor) => found[tensor.name]) };
  },
};

function timed(call) {
  const started = process.hrtime.bigint();
  call();
  return Number(process.hrtime.bigint() - started);
}

function typed(tensor, bytes) {
  const kind = arrayOf(tensor.dtype);
  return new kind(bytes.buffer, bytes.byteOffset, bytes.byteLength / kind.BYTES_PER_ELEMENT);
}

function read(size) {
  const bytes = new Uint8Array(size);
  for (let done = 0; done < size; ) {
    const count = readSync(0, bytes, done, size - done);
    if (count === 0) process.exit(0);
    done += count;
  }
  return bytes;
}

function write(bytes) {
  for (let done = 0; done < bytes.length; ) done += writeSync(1, bytes, done);
}

for (;;) {
  const size = new DataView(read(4).buffer).getUint32(0);
  const message = JSON.parse(new TextDecoder().decode(read(size)));
  const given = (message.bytes ?? []).map(read);
  let answer;
  try {
    answer = await actions[message.do](message, given);
  } catch (error) {
    answer = { error: String(error?.message ?? error) };
  }
  const { payloads = [], ...rest } = answer;
  const text = new TextEncoder().encode(
    JSON.stringify({ ...rest, bytes: payloads.map((one) => one.byteLength) }),
  );
  const head = new Uint8Array(4);
  new DataView(head.buffer).setUint32(0, text.length);
  write(head);
  write(text);
  for (const one of payloads) write(new Uint8Array(one.buffer, one.byteOffset, one.byteLength));
}
