// The runner, which calls TensorRT, as a separate library next to the model's. To compile it by
// hand, add the folders of NVIDIA's headers if the compiler does not find them:
//   g++ -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -I FOLDER
//       -o libedgekit_tensorrt.so edgekit_tensorrt.cc -ldl
#include <exception>

#include "edgekit_tensorrt_engine.h"

namespace {

void say(const char* what, char* why, size_t room) {
  if (room > 0) std::snprintf(why, room, "%s", what);
}

template <typename Result, typename Work>
Result attempted(Result failed, char* why, size_t room, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    say(error.what(), why, room);
  } catch (...) {
    say("TensorRT failed without a reason", why, room);
  }
  return failed;
}

}  // namespace

#define EDGEKIT_EXPORTED extern "C" __attribute__((visibility("default")))

EDGEKIT_EXPORTED void* EDGEKIT_TENSORRT_OPEN(const EdgekitTensorrtRegion* region, char* why,
                                             size_t room) {
  return attempted<void*>(nullptr, why, room,
                          [&] { return new edgekit::tensorrt::OpenedRegion(*region); });
}

EDGEKIT_EXPORTED int EDGEKIT_TENSORRT_RUN(void* opened, const void* const* inputs,
                                          void* const* outputs, int on_gpu, void* stream,
                                          char* why, size_t room) {
  return attempted(-1, why, room, [&] {
    auto* region = static_cast<edgekit::tensorrt::OpenedRegion*>(opened);
    if (on_gpu) {
      region->run_there(inputs, outputs, static_cast<cudaStream_t>(stream));
    } else {
      region->run(inputs, outputs);
    }
    return 0;
  });
}

EDGEKIT_EXPORTED void EDGEKIT_TENSORRT_CLOSE(void* opened) {
  delete static_cast<edgekit::tensorrt::OpenedRegion*>(opened);
}
