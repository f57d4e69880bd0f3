// In the place of what speaks to TensorRT, for tests of the way there: it says how far it is and
// computes ReLU. Nothing of NVIDIA's is in it, and nothing about TensorRT follows from it.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "edgekit_tensorrt_part.h"

namespace {

struct Opened {
  std::vector<size_t> bytes;
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void* EDGEKIT_TENSORRT_OPEN(const EdgekitTensorrtRegion* region, char*, size_t) {
  // From another thread, as TensorRT does it.
  std::thread telling([region] {
    for (int percent = 0; percent <= 100; percent += 20) {
      const std::string text = std::string(region->name) + ": " + std::to_string(percent) + " %";
      region->tell(text.c_str(), 1);
    }
  });
  telling.join();
  return new Opened{{region->bytes, region->bytes + region->tensors}};
}

EXPORTED int EDGEKIT_TENSORRT_RUN(void* opened, const void* const* inputs, void* const* outputs,
                                  int on_gpu, void*, char* why, size_t room) {
  if (on_gpu) {
    std::snprintf(why, room, "the stand-in has no GPU");
    return -1;
  }
  const std::vector<size_t>& bytes = static_cast<Opened*>(opened)->bytes;
  if (bytes.size() != 2 || bytes[0] != bytes[1]) {
    std::snprintf(why, room, "the stand-in runs one tensor");
    return -1;
  }
  const float* given = static_cast<const float*>(inputs[0]);
  float* wanted = static_cast<float*>(outputs[0]);
  for (size_t i = 0; i < bytes[0] / sizeof(float); ++i) wanted[i] = given[i] > 0 ? given[i] : 0;
  return 0;
}

EXPORTED void EDGEKIT_TENSORRT_CLOSE(void* opened) { delete static_cast<Opened*>(opened); }
