// Models whose kernels run on a GPU: their tensors lie in its memory.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <string>

#include "model.h"

namespace edgekit {

// Returns DLPack's number of the device that a library's kernels run on. For a GPU it loads TVM's
// runtime for CUDA, which must be loaded before the library.
int DeviceOf(const std::string& library);

// Copies a tensor to the GPU or the CPU's memory. The copy is complete on return.
tvm::ffi::Tensor On(int device, const tvm::ffi::Tensor& tensor);

}  // namespace edgekit
