// The model: loaded once, run as often as you like.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

#include "model.h"

namespace app {

using Tensors = std::vector<tvm::ffi::Tensor>;

class Predictor {
 public:
  // Throws tvm::ffi::Error where the library can't be loaded.
  explicit Predictor(const std::string& library);

  // Takes the inputs in the order of model::kInputs and gives the outputs in that of
  // model::kOutputs. Throws std::invalid_argument for inputs that do not fit, tvm::ffi::Error where
  // the model fails. The outputs stay valid as long as you keep them.
  Tensors Run(const Tensors& inputs);

 private:
  tvm::ffi::Module library_;
  tvm::ffi::Module machine_;
  tvm::ffi::Function main_;
};

// Memory for an input or output, to be filled through data_ptr(): from a camera, say.
tvm::ffi::Tensor NewTensor(const model::TensorInfo& info);

// "float32[1, 3, 224, 224]"
std::string TypeOf(const model::TensorInfo& info);
std::string TypeOf(const tvm::ffi::Tensor& tensor);

}  // namespace app
