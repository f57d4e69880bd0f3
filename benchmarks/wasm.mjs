// node wasm.mjs LOADER MODULE MODEL ONNXRUNTIME ROUNDS RUNS: times a model in both ways, in turns.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [loader, module, onnx, folder, rounds, runs] = process.argv.slice(2);
const { ARRAYS, load } = await import(pathToFileURL(loader));
const ort = await import(pathToFileURL(`${folder}/dist/ort.wasm.bundle.min.mjs`));
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = pathToFileURL(`${folder}/dist/`).href;

const model = await load(await readFile(module));
const session = await ort.InferenceSession.create(new Uint8Array(await readFile(onnx)), {
  executionProviders: ["wasm"],
});
let state = 1;
const inputs = {};
const feeds = {};
for (const { name, dtype, shape, bytes } of model.inputs) {
  const values = new ARRAYS[dtype](bytes / ARRAYS[dtype].BYTES_PER_ELEMENT);
  for (let k = 0; k < values.length; k++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[k] = dtype.startsWith("float") ? state / 2 ** 31 - 1 : 0;
  }
  inputs[name] = values;
  feeds[name] = new ort.Tensor(dtype, values, shape);
}

const ours = () => model.run(inputs);
const theirs = () => session.run(feeds);

let error = 0;
const expected = await theirs();
for (const [name, values] of Object.entries(ours())) {
  const { data } = expected[name];
  const largest = data.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30);
  values.forEach((value, k) => (error = Math.max(error, Math.abs(value - data[k]) / largest)));
}

async function fastest(call) {
  const times = [];
  for (let k = 0; k < runs; k++) {
    const started = process.hrtime.bigint();
    await call();
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
  }
  return Math.min(...times);
}

// Both are compiled by V8's optimising compiler after some runs.
await fastest(ours);
await fastest(theirs);
const found = [];
for (let round = 0; round < rounds; round++) found.push([await fastest(ours), await fastest(theirs)]);
console.log(JSON.stringify({ error, found }));
