// Tensors in numpy's .npy files, versions 1.0 and 2.0, C order, little endian.
#pragma once

#include <string>

#include "tensor.h"

namespace edgekit {

// Throws std::runtime_error on a damaged file.
Tensor ReadNpy(const std::string& path);

// Writes a temporary file and renames it, so that no reader ever sees a partial file.
void WriteNpy(const std::string& path, const Tensor& tensor);

// The tensors input-0.npy, input-1.npy, ... of a folder, in order.
Tensors ReadSample(const std::string& folder);

}  // namespace edgekit
