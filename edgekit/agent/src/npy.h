// Tensors in numpy's .npy files, versions 1.0 and 2.0, C order, little endian.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <string>

namespace edgekit {

// A tensor whose data is aligned for vector loads. Throws std::runtime_error on a damaged file.
tvm::ffi::Tensor ReadNpy(const std::string& path);

// Writes a temporary file and renames it, so that no reader ever sees a partial file.
void WriteNpy(const std::string& path, const tvm::ffi::Tensor& tensor);

}  // namespace edgekit
