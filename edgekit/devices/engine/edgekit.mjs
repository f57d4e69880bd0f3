// Runs a model in an engine of WebAssembly: a browser, Node.js, Deno.
//
//   import { load } from "./edgekit.mjs";
//   const model = await load("model.wasm");
//   const { probabilities } = model.run({ image: new Float32Array(3 * 224 * 224) });

// The typed array of each type of numbers.
export const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  // The bits of each number: not every engine has an array of these types.
  float16: Uint16Array,
  bfloat16: Uint16Array,
};

// The typed array for a type; smaller types are passed as their bits too.
export const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array;
const INTERFACE = 1;

export class Model {
  // The names, types and shapes of the tensors, and the names of the steps.
  inputs;
  outputs;
  steps;
  #exports;
  #program;

  constructor(instance) {
    const exports = (this.#exports = instance.exports);
    exports._initialize?.();
    const view = new DataView(exports.memory.buffer);
    const info = exports.edgekit_model_info();
    const field = (index) => view.getUint32(info + 4 * index, true);
    if (field(0) !== INTERFACE) {
      throw new Error(`the module's interface has version ${field(0)}, not ${INTERFACE}`);
    }
    this.inputs = tensors(view, field(5), field(2));
    this.outputs = tensors(view, field(6), field(3));
    this.steps = [];
    for (let k = 0; k < field(4); k++) {
      this.steps.push(text(view, view.getUint32(field(7) + 4 * k, true)));
    }
    this.#program = exports.edgekit_create(0, 1);
    if (this.#program === 0) throw new Error("the engine has no memory for the model's tensors");
  }

  // The bytes of memory that the module has, weights and tensors included.
  get memoryBytes() {
    return this.#exports.memory.buffer.byteLength;
  }

  // Runs the model: a typed array for each input, by name. Returns copies of the outputs, by name.
  run(inputs) {
    this.setInputs(inputs);
    this.runOnly();
    return this.copyOutputs();
  }

  // The three parts of a run. A run overwrites the inputs.
  setInputs(inputs) {
    for (const name of Object.keys(inputs)) {
      if (!this.inputs.some((tensor) => tensor.name === name)) {
        const known = this.inputs.map((tensor) => tensor.name).join(", ");
        throw new Error(`the model has no input ${name}; it has ${known}`);
      }
    }
    this.inputs.forEach((tensor, index) => {
      const given = inputs[tensor.name];
      const own = this.#view(tensor, this.#exports.edgekit_input(this.#program, index));
      if (given?.constructor !== own.constructor || given.length !== own.length) {
        const found = given === undefined ? "nothing" : `${given.constructor?.name} of ${given.length}`;
        throw new Error(
          `the input ${tensor.name} is a ${own.constructor.name} of ${own.length}, not ${found}`,
        );
      }
      own.set(given);
    });
  }

  runOnly() {
    this.#check(this.#exports.edgekit_run(this.#program, 0, 0));
  }

  runStep(index) {
    this.#check(this.#exports.edgekit_run_step(this.#program, index));
  }

  copyOutputs() {
    return Object.fromEntries(
      this.outputs.map((tensor, index) => [
        tensor.name,
        this.#view(tensor, this.#exports.edgekit_output(this.#program, index)).slice(),
      ]),
    );
  }

  #view(tensor, address) {
    const kind = arrayOf(tensor.dtype);
    return new kind(this.#exports.memory.buffer, address, tensor.bytes / kind.BYTES_PER_ELEMENT);
  }

  #check(status) {
    if (status === 0) return;
    const view = new DataView(this.#exports.memory.buffer);
    throw new Error(text(view, this.#exports.edgekit_error(this.#program)) || `status ${status}`);
  }
}

// Loads a module: its address, its bytes, or a compiled WebAssembly.Module.
export async function load(source) {
  if (source instanceof WebAssembly.Module) return new Model(await WebAssembly.instantiate(source));
  let bytes = source;
  if (typeof source === "string" || source instanceof URL) {
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`${source} is not there: status ${answer.status}`);
    bytes = await answer.arrayBuffer();
  }
  return new Model((await WebAssembly.instantiate(bytes)).instance);
}

function tensors(view, start, count) {
  return Array.from({ length: count }, (_, index) => {
    const field = (k) => view.getUint32(start + 20 * index + 4 * k, true);
    const shape = Array.from({ length: field(2) }, (_, axis) =>
      Number(view.getBigInt64(field(3) + 8 * axis, true)),
    );
    return { name: text(view, field(0)), dtype: text(view, field(1)), shape, bytes: field(4) };
  });
}

function text(view, address) {
  let end = address;
  while (view.getUint8(end) !== 0) end++;
  return new TextDecoder().decode(new Uint8Array(view.buffer, address, end - address));
}
