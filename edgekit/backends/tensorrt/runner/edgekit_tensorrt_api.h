// TensorRT, its ONNX parser and CUDA, found when a region runs for the first time: a model's
// library needs none of them to be linked or loaded, and says by name which one is missing.
#pragma once

#include <NvInfer.h>
#include <NvOnnxParser.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "edgekit_engine_words.h"
#include "edgekit_progress.h"

#if NV_TENSORRT_MAJOR < 8 || (NV_TENSORRT_MAJOR == 8 && NV_TENSORRT_MINOR < 5)
#error "edgekit needs TensorRT 8.5 or newer"
#endif

namespace edgekit {
namespace tensorrt {

class Library {
 public:
  explicit Library(const std::vector<std::string>& names) {
    std::string why;
    for (const std::string& name : names) {
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      if (const char* said = dlerror())
        if (why.empty()) why = said;
    }
    throw std::runtime_error("this device has no " + names.front() + " (" + why +
                             "); install JetPack's TensorRT, of the version that the model's part "
                             "for it was compiled with");
  }

  template <typename Function>
  Function* function(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) throw std::runtime_error(std::string("there is no ") + name);
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* handle_ = nullptr;  // kept for as long as the process lives: engines are their code
};

inline std::string versioned(const char* library, int major) {
  return std::string(library) + ".so." + std::to_string(major);
}

struct Nvidia {
  Library infer{{versioned("libnvinfer", NV_TENSORRT_MAJOR)}};
  Library parser{{versioned("libnvonnxparser", NV_TENSORRT_MAJOR)}};
#if CUDART_VERSION >= 12000
  Library cuda{{versioned("libcudart", CUDART_VERSION / 1000)}};
#else
  Library cuda{{"libcudart.so.11.0"}};
#endif

  decltype(createInferBuilder_INTERNAL)* create_builder =
      infer.function<decltype(createInferBuilder_INTERNAL)>("createInferBuilder_INTERNAL");
  decltype(createInferRuntime_INTERNAL)* create_runtime =
      infer.function<decltype(createInferRuntime_INTERNAL)>("createInferRuntime_INTERNAL");
  decltype(getInferLibVersion)* version =
      infer.function<decltype(getInferLibVersion)>("getInferLibVersion");
  decltype(createNvOnnxParser_INTERNAL)* create_parser =
      parser.function<decltype(createNvOnnxParser_INTERNAL)>("createNvOnnxParser_INTERNAL");

  const char* (*error_text)(cudaError_t) =
      cuda.function<const char*(cudaError_t)>("cudaGetErrorString");
  cudaError_t (*get_device)(int*) = cuda.function<cudaError_t(int*)>("cudaGetDevice");
  cudaError_t (*attribute)(int*, cudaDeviceAttr, int) =
      cuda.function<cudaError_t(int*, cudaDeviceAttr, int)>("cudaDeviceGetAttribute");
  cudaError_t (*allocate)(void**, size_t) = cuda.function<cudaError_t(void**, size_t)>("cudaMalloc");
  cudaError_t (*release)(void*) = cuda.function<cudaError_t(void*)>("cudaFree");
  cudaError_t (*allocate_host)(void**, size_t) =
      cuda.function<cudaError_t(void**, size_t)>("cudaMallocHost");
  cudaError_t (*release_host)(void*) = cuda.function<cudaError_t(void*)>("cudaFreeHost");
  cudaError_t (*copy)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) =
      cuda.function<cudaError_t(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t)>(
          "cudaMemcpyAsync");
  cudaError_t (*create_stream)(cudaStream_t*, unsigned) =
      cuda.function<cudaError_t(cudaStream_t*, unsigned)>("cudaStreamCreateWithFlags");
  cudaError_t (*destroy_stream)(cudaStream_t) =
      cuda.function<cudaError_t(cudaStream_t)>("cudaStreamDestroy");
  cudaError_t (*synchronize)(cudaStream_t) =
      cuda.function<cudaError_t(cudaStream_t)>("cudaStreamSynchronize");

  void check(cudaError_t status, const char* doing) const {
    if (status == cudaSuccess) return;
    throw std::runtime_error(std::string("CUDA could not ") + doing + ": " + error_text(status));
  }

  std::string gpu_name(int device) const {
    // The driver's function: CUDA's own fills a struct that differs from version to version.
    const Library driver({"libcuda.so.1"});
    char name[256] = "";
    const auto get = driver.function<int(char*, int, int)>("cuDeviceGetName");
    const auto start = driver.function<int(unsigned)>("cuInit");
    return start(0) == 0 && get(name, sizeof(name), device) == 0 ? name : "";
  }

  static const Nvidia& here() {
    static const Nvidia found;
    return found;
  }
};

struct GpuMemory {
  static void* host(size_t size) {
    void* made = nullptr;
    const Nvidia& nvidia = Nvidia::here();
    nvidia.check(nvidia.allocate_host(&made, size), "allocate pinned memory");
    return made;
  }
  static void free_host(void* memory) { Nvidia::here().release_host(memory); }
  static void* device(size_t size) {
    void* made = nullptr;
    const Nvidia& nvidia = Nvidia::here();
    nvidia.check(nvidia.allocate(&made, size), "allocate memory on the GPU");
    return made;
  }
  static void free_device(void* memory) { Nvidia::here().release(memory); }
};

class Logger : public nvinfer1::ILogger {
 public:
  Messages messages;

  // The receiver of every line; may be null.
  void follow(Progress* progress) { progress_ = progress; }

  void log(Severity severity, const char* text) noexcept override {
    if (text == nullptr) return;
    try {
      if (severity <= Severity::kERROR) messages.error(text);
      if (Progress* progress = progress_) progress->line(text);
    } catch (...) {
      // Without memory for the message: what failed says so itself.
    }
  }

 private:
  std::atomic<Progress*> progress_{nullptr};
};

#if NV_TENSORRT_MAJOR >= 10
class Monitor : public nvinfer1::IProgressMonitor {
 public:
  explicit Monitor(Progress& progress) : progress_(progress) {}

  void phaseStart(const char* phase, const char* parent, int32_t steps) noexcept override {
    quietly([&] { progress_.start(text(phase), text(parent), steps); });
  }
  bool stepComplete(const char* phase, int32_t step) noexcept override {
    quietly([&] { progress_.step(text(phase), step); });
    return true;
  }
  void phaseFinish(const char* phase) noexcept override {
    quietly([&] { progress_.finish(text(phase)); });
  }

 private:
  Progress& progress_;

  static std::string text(const char* given) { return given == nullptr ? "" : given; }

  template <typename Work>
  static void quietly(Work work) noexcept {
    try {
      work();
    } catch (...) {
      // Without memory for a message this step is not reported.
    }
  }
};
#endif

}  // namespace tensorrt
}  // namespace edgekit
