// Models whose kernels run on a GPU: their tensors lie in its memory.
#pragma once

#include <string>

#include "model.h"

namespace edgekit {

// Of the device that a library's kernels run on, as DLPack numbers them. Where that is a GPU, TVM's
// runtime for CUDA is there after this call: it has to be before the library is loaded.
int DeviceOf(const std::string& library);

// A copy on a device: the GPU, or the CPU's memory. It is whole when this returns.
tvm::ffi::Tensor On(int device, const tvm::ffi::Tensor& tensor);

}  // namespace edgekit
