#include "predictor.h"

namespace app {
namespace {

bool Fits(const model::TensorInfo& info, const Tensor& tensor) {
  bool fits = tensor.dtype == info.dtype && tensor.shape.size() == info.shape.size();
  for (size_t i = 0; fits && i < info.shape.size(); ++i) {
    fits = info.smallest[i] <= tensor.shape[i] && tensor.shape[i] <= info.shape[i];
  }
  return fits;
}

void CheckInputs(const Tensors& inputs) {
  if (inputs.size() != model::kInputs.size()) {
    throw std::invalid_argument("the model takes " + std::to_string(model::kInputs.size()) +
                                " inputs, not " + std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Fits(model::kInputs[i], inputs[i])) {
      throw std::invalid_argument(std::string("the input ") + model::kInputs[i].name + " is " +
                                  TypeOf(model::kInputs[i]) + ", not " + TypeOf(inputs[i]));
    }
  }
}

}  // namespace

Predictor::Predictor(const std::string& library, int threads) : model_(library, threads) {}

Tensors Predictor::Run(const Tensors& inputs) {
  CheckInputs(inputs);
  Tensors outputs;
  std::vector<const void*> given;
  std::vector<const int64_t*> shapes;
  std::vector<void*> made;
  std::vector<int64_t*> sizes;
  for (const Tensor& input : inputs) {
    given.push_back(input.data.get());
    shapes.push_back(input.shape.data());
  }
  for (const model::TensorInfo& info : model::kOutputs) outputs.push_back(NewTensor(info));
  for (Tensor& output : outputs) {
    made.push_back(output.data.get());
    sizes.push_back(output.shape.data());
  }
  model_.Run(given.data(), shapes.data(), made.data(), sizes.data());
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].bytes = edgekit::Model::Elements(outputs[i].shape) *
                       edgekit::Model::ElementBytes(model_.outputs[i]);
  }
  return outputs;
}

Tensor NewTensor(const model::TensorInfo& info) {
  return edgekit::NewTensor(info.dtype, info.shape, info.bytes);
}

std::string TypeOf(const model::TensorInfo& info) {
  return edgekit::Typed(info.dtype, info.smallest, info.shape);
}

std::string TypeOf(const Tensor& tensor) {
  return edgekit::Typed(tensor.dtype, tensor.shape, tensor.shape);
}

}  // namespace app
