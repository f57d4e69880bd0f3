// A tensor in memory that is aligned for vector loads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace edgekit {

struct Tensor {
  std::string dtype;  // as numpy names it: float32, bfloat16, bool
  std::vector<int64_t> shape;
  size_t bytes = 0;
  std::shared_ptr<void> data;
};

using Tensors = std::vector<Tensor>;

// Throws std::bad_alloc.
Tensor NewTensor(std::string dtype, std::vector<int64_t> shape, size_t bytes);

}  // namespace edgekit
