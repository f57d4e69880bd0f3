// The model of edgekit.hpp with the tensors of the program's files.
#pragma once

#include <string>

#include "edgekit.hpp"
#include "model.h"
#include "tensor.h"

namespace app {

using edgekit::Tensor;
using edgekit::Tensors;

// The model failed: an index is outside of its tensor, or a vendor's library could not run its part.
using ModelError = edgekit::Error;

class Predictor {
 public:
  // Takes one thread for each core, or as many as `threads` says. Throws std::runtime_error if the
  // library can't be loaded.
  explicit Predictor(const std::string& library, int threads = 0);

  // Takes inputs in the order of model::kInputs and returns outputs in the order of model::kOutputs.
  // Where sizes vary, an input may have any size in its range, and an output has its true size.
  // Throws std::invalid_argument if an input does not fit, ModelError if the model fails. One thread
  // at a time may call it; other threads make predictors of their own.
  Tensors Run(const Tensors& inputs);

 private:
  edgekit::Model model_;
};

// Allocates an input or output of the largest size, to be filled through `data`, for example from a camera.
Tensor NewTensor(const model::TensorInfo& info);

// "float32[1, 3, 224, 224]", "int64[1, 1..512]"
std::string TypeOf(const model::TensorInfo& info);
std::string TypeOf(const Tensor& tensor);

}  // namespace app
