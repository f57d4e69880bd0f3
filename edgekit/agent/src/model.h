// A compiled model: TVM's virtual machine in a shared library.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

namespace edgekit {

using Tensors = std::vector<tvm::ffi::Tensor>;

class Model {
 public:
  // `threads` 0 leaves the number to TVM. It must be set before the pool exists, so only once.
  static Model Load(const std::string& library, int threads);

  // Compiled code may throw tvm::ffi::Error or end the process. Inputs and outputs lie in the CPU's
  // memory, even if the model runs on a GPU.
  tvm::ffi::Any Run(const Tensors& inputs);
  static Tensors Flatten(const tvm::ffi::Any& result);

  int threads() const { return threads_; }
  int64_t load_nanoseconds() const { return load_nanoseconds_; }

  // Called by the virtual machine before and after each kernel; an empty function ends it.
  void SetInstrument(tvm::ffi::Function instrument);

 private:
  Model(tvm::ffi::Module library, tvm::ffi::Module machine, tvm::ffi::Function main, int device)
      : library_(library), machine_(machine), main_(main), device_(device) {}

  tvm::ffi::Module library_;
  tvm::ffi::Module machine_;
  tvm::ffi::Function main_;
  int device_;
  int threads_ = 0;
  int64_t load_nanoseconds_ = 0;
};

// The tensors input-0.npy, input-1.npy, ... of a folder, in order.
Tensors ReadSample(const std::string& folder);

int64_t Now();  // nanoseconds, monotonic

}  // namespace edgekit
