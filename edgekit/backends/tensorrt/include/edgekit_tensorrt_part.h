// The interface between a model's library and the runner, a separate library next to the model's
// that calls TensorRT. The runner is compiled where NVIDIA's headers are, possibly on the device.
// Plain C and plain memory, so that the two need not be compiled alike.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct EdgekitTensorrtRegion {
  const char* name;
  const void* model;  // ONNX, which has to stay where it is
  size_t model_size;
  const char* precision;  // fp32, tf32, fp16; int8 where the model is quantised, fp16 elsewhere
  int64_t workspace_bytes;
  int dla_core;  // -1 is the GPU
  int builder_level;
  size_t inputs;
  size_t tensors;       // inputs, and after them outputs
  const size_t* bytes;  // of each
  const unsigned char* longer;  // of each: 1 where it has 64 bits an element, and the engine 32
  // What it does, from any thread; `moving` where that is how far it is, said again and again.
  void (*tell)(const char* text, int moving);
};

// Whatever fails says in `why` what did, in at most `room` bytes. `open` gives null then, `run` -1.
// The number at the end counts up whenever one of these changes.
typedef void* EdgekitTensorrtOpen(const EdgekitTensorrtRegion* region, char* why, size_t room);
// With `on_gpu` the tensors lie in the GPU's memory: they are used there, in the order of `stream`
// (CUDA's, null for its default one), and nothing is waited for.
typedef int EdgekitTensorrtRun(void* opened, const void* const* inputs, void* const* outputs,
                               int on_gpu, void* stream, char* why, size_t room);
typedef void EdgekitTensorrtClose(void* opened);
#define EDGEKIT_TENSORRT_OPEN edgekit_tensorrt_open_2
#define EDGEKIT_TENSORRT_RUN edgekit_tensorrt_run_2
#define EDGEKIT_TENSORRT_CLOSE edgekit_tensorrt_close_2
}

#define EDGEKIT_TENSORRT_TEXT(word) #word
#define EDGEKIT_TENSORRT_NAME(function) EDGEKIT_TENSORRT_TEXT(function)
