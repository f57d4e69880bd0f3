export type TypedArray =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

export interface Tensor {
  readonly name: string;
  /** As numpy names it. float16 and bfloat16 are the bits of each number in a Uint16Array. */
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

export class Model {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly steps: readonly string[];
  readonly memoryBytes: number;
  /** Runs the model: a typed array for each input, by name. Returns copies of the outputs. */
  run(inputs: Record<string, TypedArray>): Record<string, TypedArray>;
  setInputs(inputs: Record<string, TypedArray>): void;
  runOnly(): void;
  runStep(index: number): void;
  copyOutputs(): Record<string, TypedArray>;
}

export const ARRAYS: Readonly<Record<string, new (length: number) => TypedArray>>;

export function arrayOf(dtype: string): new (length: number) => TypedArray;

/** Loads a module: its address, its bytes, or a compiled module. */
export function load(source: string | URL | BufferSource | WebAssembly.Module): Promise<Model>;
