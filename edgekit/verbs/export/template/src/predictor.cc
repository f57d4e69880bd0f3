#include "predictor.h"

#include <dlfcn.h>

namespace app {
namespace {

template <typename Function>
Function* Symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    throw std::runtime_error(std::string("the model's library has no function ") + name);
  }
  return reinterpret_cast<Function*>(found);
}

std::string Typed(const std::string& dtype, const std::vector<int64_t>& smallest,
                  const std::vector<int64_t>& shape) {
  std::string text = dtype + "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    if (smallest[i] != shape[i]) text += std::to_string(smallest[i]) + "..";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

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

Predictor::Predictor(const std::string& library, int threads) {
  // The path needs a slash: without one, dlopen searches the system's folders.
  const std::string path = library.find('/') == std::string::npos ? "./" + library : library;
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* reason = dlerror();
    throw std::runtime_error(reason == nullptr ? "the model does not load" : reason);
  }
  const edgekit_info* info = Symbol<decltype(edgekit_model_info)>(opened, "edgekit_model_info")();
  if (info->interface != EDGEKIT_INTERFACE) {
    throw std::runtime_error("the model's interface has another version than edgekit.h");
  }
  run_ = Symbol<decltype(edgekit_run)>(opened, "edgekit_run");
  run_sizes_ = Symbol<decltype(edgekit_run_sizes)>(opened, "edgekit_run_sizes");
  error_ = Symbol<decltype(edgekit_error)>(opened, "edgekit_error");
  program_.reset(Symbol<decltype(edgekit_create)>(opened, "edgekit_create")(nullptr, threads),
                 Symbol<decltype(edgekit_destroy)>(opened, "edgekit_destroy"));
  if (program_ == nullptr) throw std::bad_alloc();
}

Tensors Predictor::Run(const Tensors& inputs) {
  CheckInputs(inputs);
  Tensors outputs;
  std::vector<const void*> given;
  std::vector<void*> made;
  for (const Tensor& input : inputs) given.push_back(input.data.get());
  for (const model::TensorInfo& info : model::kOutputs) {
    outputs.push_back(NewTensor(info));
    made.push_back(outputs.back().data.get());
  }
  const int status = model::kVaries ? RunSizes(inputs, &outputs)
                                    : run_(program_.get(), given.data(), made.data());
  if (status != EDGEKIT_OK) throw ModelError(error_(program_.get()));
  return outputs;
}

int Predictor::RunSizes(const Tensors& inputs, Tensors* outputs) {
  std::vector<const void*> given;
  std::vector<const int64_t*> shapes;
  std::vector<void*> made;
  std::vector<int64_t*> sizes;
  for (const Tensor& input : inputs) {
    given.push_back(input.data.get());
    shapes.push_back(input.shape.data());
  }
  for (Tensor& output : *outputs) {
    made.push_back(output.data.get());
    sizes.push_back(output.shape.data());
  }
  const int status =
      run_sizes_(program_.get(), given.data(), shapes.data(), made.data(), sizes.data());
  for (size_t i = 0; status == EDGEKIT_OK && i < outputs->size(); ++i) {
    const model::TensorInfo& info = model::kOutputs[i];
    size_t bytes = info.bytes;  // of one element in the end
    for (int64_t extent : info.shape) bytes /= extent > 0 ? extent : 1;
    for (int64_t extent : (*outputs)[i].shape) bytes *= extent;
    (*outputs)[i].bytes = bytes;
  }
  return status;
}

Tensor NewTensor(const model::TensorInfo& info) {
  return edgekit::NewTensor(info.dtype, info.shape, info.bytes);
}

std::string TypeOf(const model::TensorInfo& info) {
  return Typed(info.dtype, info.smallest, info.shape);
}

std::string TypeOf(const Tensor& tensor) {
  return Typed(tensor.dtype, tensor.shape, tensor.shape);
}

}  // namespace app
