#include "gpu.h"

#include <dlfcn.h>

#include <stdexcept>

#include "calls.h"

namespace edgekit {
namespace {

// edgekit/cross/library_code.py
constexpr char kMark[] = "edgekit_runs_on_cuda";
constexpr char kRuntime[] = "libtvm_runtime_cuda.so";

}  // namespace

int DeviceOf(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) return kDLCPU;  // TVM reports the reason when it loads the library
  if (dlsym(opened, kMark) == nullptr) {
    dlclose(opened);
    return kDLCPU;
  }
  // The runtime comes with the model, in the same folder.
  const std::string runtime = library.substr(0, library.rfind('/') + 1) + kRuntime;
  if (dlopen(runtime.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* reason = dlerror();
    throw std::runtime_error(
        "the model runs on a GPU of NVIDIA's, and TVM's runtime for CUDA 13 does not load: " +
        std::string(reason == nullptr ? "no reason was given" : reason));
  }
  return kDLCUDA;
}

tvm::ffi::Tensor On(int device, const tvm::ffi::Tensor& tensor) {
  return CallGlobal("vm.builtin.to_device", tensor, device, 0).cast<tvm::ffi::Tensor>();
}

}  // namespace edgekit
