// Tensors that lie in the GPU's memory already, through the runner with stand-ins for NVIDIA's
// libraries. Prints what does not hold.
#include "tensorrt_gpu_stand_in.h"

#include <dlfcn.h>

#include <cstdio>

#include "edgekit_tensorrt_engine.h"

namespace {

int failures = 0;

void holds(bool condition, const char* what) {
  if (condition) return;
  std::printf("%s\n", what);
  ++failures;
}

void quiet(const char*, int) {}

bool is_relu(const float* given, const float* found) {
  for (int i = 0; i < kElements; ++i)
    if (found[i] != (given[i] > 0 ? given[i] : 0)) return false;
  return true;
}

}  // namespace

int main() {
  const size_t sizes[] = {kElements * sizeof(float), kElements * sizeof(float)};
  const unsigned char longer[] = {0, 0};
  const EdgekitTensorrtRegion described{"region", "onnx", 4, "fp32", 1 << 20, -1,
                                        3,        1,      2, sizes,  longer,  quiet};
  edgekit::tensorrt::OpenedRegion region(described);
  void* library = dlopen("libcudart.so.12", RTLD_NOW);
  const Told* told = reinterpret_cast<Told* (*)()>(dlsym(library, "edgekit_stand_in_told"))();

  float given[kElements] = {-1, 2, -3, 4}, found[kElements] = {};
  const void* inputs[] = {given};
  void* outputs[] = {found};
  const auto first = reinterpret_cast<cudaStream_t>(&failures);
  const auto second = reinterpret_cast<cudaStream_t>(given);
  region.run_there(inputs, outputs, first);
  holds(is_relu(given, found), "the engine computed something else");
  holds(told->input == given && told->output == found, "it was not given the tensors themselves");
  holds(told->stream == first, "it ran on another stream than the caller's");
  holds(told->copies == 0 && told->waits == 0, "something was copied or waited for");
  holds(told->allocations == 0, "memory was asked for, and nothing goes through it");

  region.run_there(inputs, outputs, first);
  holds(told->waits == 0, "one stream waits for itself");
  region.run_there(inputs, outputs, second);
  holds(told->waits == 1, "an engine was given to two streams at once");

  float there[kElements] = {};
  void* elsewhere[] = {there};
  region.run(inputs, elsewhere);
  holds(is_relu(given, there), "tensors in the CPU's memory came out differently");
  holds(told->input != given && told->output != there, "the GPU was given the CPU's memory");
  holds(told->copies == 2, "one copy each way");

  region.run_there(inputs, outputs, second);
  holds(told->input == given && told->output == found, "the tensors of the call before were kept");
  holds(told->copies == 2, "a call after one of the CPU's was copied for");
  return failures;
}
