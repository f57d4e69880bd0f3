// A model, loaded once and run often.
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
  // Throws tvm::ffi::Error if the library can't be loaded.
  explicit Predictor(const std::string& library);

  // Takes inputs in the order of model::kInputs and returns outputs in the order of model::kOutputs.
  // Throws std::invalid_argument if an input does not fit, tvm::ffi::Error if the model fails. The
  // outputs stay valid as long as you hold them.
  Tensors Run(const Tensors& inputs);

 private:
  tvm::ffi::Module library_;
  tvm::ffi::Module machine_;
  tvm::ffi::Function main_;
};

// Allocates an input or output, to be filled through data_ptr(), for example from a camera.
tvm::ffi::Tensor NewTensor(const model::TensorInfo& info);

// "float32[1, 3, 224, 224]"
std::string TypeOf(const model::TensorInfo& info);
std::string TypeOf(const tvm::ffi::Tensor& tensor);

}  // namespace app
