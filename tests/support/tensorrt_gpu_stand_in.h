// What tensorrt_gpu_stand_in.cc counts.
#pragma once

constexpr int kElements = 4;

struct Told {
  int copies;
  int waits;
  int allocations;
  void* input;   // as the engine had it at last
  void* output;
  void* stream;
};
