// A TensorRT region in the model's library, without anything of NVIDIA's. The runner, which calls
// TensorRT, is a separate library next to the model's, loaded at the region's first call.
#pragma once

#include <dlfcn.h>
#include <time.h>
#ifdef EDGEKIT_WITH_TVM
#include <tvm/ffi/extra/c_env_api.h>
#endif

#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "edgekit_region.h"
#include "edgekit_tell.h"
#include "edgekit_tensorrt_part.h"

namespace edgekit {
namespace tensorrt {

struct Settings {
  const char* precision;
  int64_t workspace_bytes;
  int dla_core;
  int builder_level;
};

#ifdef EDGEKIT_WITH_TVM
inline void* stream_of_gpu() { return TVMFFIEnvGetStream(kDLCUDA, 0); }
#else
inline void* stream_of_gpu() { return nullptr; }
#endif

// Reports to the listener, or else to stderr: building an engine takes minutes.
inline void tell(const char* text, int moving) {
  static std::mutex telling;
  static time_t next = 0;
  std::lock_guard<std::mutex> lock(telling);
  if (heard(text)) return;
  const time_t now = time(nullptr);
  if (moving && now < next) return;
  if (moving) next = now + 10;
  std::fprintf(stderr, "edgekit: %s\n", text);
  std::fflush(stderr);
}

class Part {
 public:
  EdgekitTensorrtOpen* open;
  EdgekitTensorrtRun* run;
  EdgekitTensorrtClose* close;

  static const Part& here() {
    static const Part found(folder() + "libedgekit_tensorrt.so");
    return found;
  }

 private:
  explicit Part(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // kept: engines are its code
    if (library == nullptr) {
      const char* said = dlerror();
      throw std::runtime_error(
          "the part of the model that speaks to TensorRT can't be loaded (" +
          std::string(said == nullptr ? path : said) +
          "); edgekit deploy compiles it on a device that has TensorRT's headers and g++");
    }
    open = function<EdgekitTensorrtOpen>(library, path, EDGEKIT_TENSORRT_NAME(EDGEKIT_TENSORRT_OPEN));
    run = function<EdgekitTensorrtRun>(library, path, EDGEKIT_TENSORRT_NAME(EDGEKIT_TENSORRT_RUN));
    close =
        function<EdgekitTensorrtClose>(library, path, EDGEKIT_TENSORRT_NAME(EDGEKIT_TENSORRT_CLOSE));
  }

  template <typename Function>
  static Function* function(void* library, const std::string& path, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr)
      throw std::runtime_error(path + " is of another edgekit than the model; deploy it again");
    return reinterpret_cast<Function*>(found);
  }

  // Of the library that this code is in, with a slash at its end.
  static std::string folder() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&Part::here), &found) == 0 || found.dli_fname == nullptr)
      return "./";
    const std::string path = found.dli_fname;
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
  }
};

class Runner {
 public:
  // `bytes` are those of the inputs, and after them of the outputs; `longer` is 1 for those of
  // integers that the engine has in half as many bits.
  Runner(const char* region, Blob model, const Settings& settings, size_t inputs,
         const std::vector<size_t>& bytes, const std::vector<unsigned char>& longer)
      : part_(Part::here()), inputs_(inputs), bytes_(bytes) {
    const EdgekitTensorrtRegion described{region,
                                          model.data,
                                          model.size,
                                          settings.precision,
                                          settings.workspace_bytes,
                                          settings.dla_core,
                                          settings.builder_level,
                                          inputs_,
                                          bytes_.size(),
                                          bytes_.data(),
                                          longer.data(),
                                          tell};
    char why[kRoom] = "";
    opened_ = part_.open(&described, why, sizeof(why));
    if (opened_ == nullptr) throw std::runtime_error(why);
  }

  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() { part_.close(opened_); }

  static constexpr bool kTakesGpu = true;

  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    const bool on_gpu = is_on_gpu(inputs_ > 0 ? *inputs[0] : *outputs[0]);
    void* stream = on_gpu ? stream_of_gpu() : nullptr;
    std::vector<const void*> given;
    std::vector<void*> wanted;
    for (size_t i = 0; i < inputs_; ++i) given.push_back(data_of(inputs[i]));
    for (size_t i = inputs_; i < bytes_.size(); ++i) wanted.push_back(data_of(outputs[i - inputs_]));
    char why[kRoom] = "";
    if (part_.run(opened_, given.data(), wanted.data(), on_gpu, stream, why, sizeof(why)) != 0)
      throw std::runtime_error(why);
  }

  // From the caller through pinned memory to the GPU, and back, for tensors in the CPU's memory.
  size_t copied_in_a_call() const {
    size_t sum = 0;
    for (size_t one : bytes_) sum += 2 * one;
    return sum;
  }

 private:
  static constexpr size_t kRoom = 4096;
  const Part& part_;
  const size_t inputs_;
  const std::vector<size_t> bytes_;
  void* opened_ = nullptr;
};

}  // namespace tensorrt
}  // namespace edgekit
