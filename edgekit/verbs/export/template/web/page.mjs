// Runs the model on its samples, and shows how far its outputs are from the expected ones.
import { load } from "./edgekit.mjs";
import { readNumbers, readTensor } from "./npy.mjs";

const SAMPLES = {{samples}};
const RUNS = 20;

function addRow(table, cells) {
  const row = document.getElementById(table).insertRow();
  for (const cell of cells) {
    const place = row.insertCell();
    place.textContent = typeof cell === "number" ? cell.toPrecision(3) : cell;
    if (typeof cell === "number") place.className = "number";
  }
}

// Returns the largest difference and the largest value. NaN equals NaN, and infinity itself.
function compared(actual, expected) {
  let difference = 0;
  let largest = 0;
  for (let k = 0; k < expected.length; k++) {
    const same = Object.is(actual[k], expected[k]) || actual[k] === expected[k];
    const off = same ? 0 : Math.abs(actual[k] - expected[k]);
    difference = Math.max(difference, Number.isNaN(off) ? Infinity : off);
    if (Number.isFinite(expected[k])) largest = Math.max(largest, Math.abs(expected[k]));
  }
  return [difference, largest];
}

async function show() {
  const model = await load(new URL("model.wasm", import.meta.url));
  for (const tensor of model.inputs) addRow("tensors", ["input", tensor.name, tensor.dtype, tensor.shape.join(" × ")]);
  for (const tensor of model.outputs) addRow("tensors", ["output", tensor.name, tensor.dtype, tensor.shape.join(" × ")]);
  let first;
  for (const [name, folder] of Object.entries(SAMPLES)) {
    const inputs = {};
    for (const [k, tensor] of model.inputs.entries()) {
      inputs[tensor.name] = await readTensor(`${folder}/input-${k}.npy`, tensor);
    }
    first ??= inputs;
    const outputs = model.run(inputs);
    for (const [k, tensor] of model.outputs.entries()) {
      const expected = await readTensor(`${folder}/expected-${k}.npy`, tensor);
      const pair = [outputs[tensor.name], expected].map((array) => readNumbers(array, tensor.dtype));
      addRow("samples", [name, tensor.name, ...compared(...pair)]);
    }
  }
  const times = [];
  for (let k = 0; k < RUNS; k++) {
    model.setInputs(first);
    const started = performance.now();
    model.runOnly();
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  const memory = (model.memoryBytes / 2 ** 20).toFixed(1);
  document.getElementById("time").textContent =
    `median of ${RUNS} runs in this browser: ${times[RUNS >> 1].toFixed(2)} ms; ${memory} MiB of memory`;
  document.getElementById("state").textContent = "The model runs in this browser.";
}

show().catch((error) => {
  document.getElementById("state").textContent = `It failed: ${error.message}`;
});
