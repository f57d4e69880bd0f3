#include "predictor.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "calls.h"

extern "C" int TVMBackendParallelLaunch(int (*)(int, void*, void*), void*, int);

namespace app {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::Tensor;

namespace {

constexpr int kPooledAllocator = 2;
constexpr size_t kAlignment = 64;  // for vector loads

struct AlignedAllocator {
  void AllocData(DLTensor* tensor) {
    size_t bytes = tvm::ffi::GetDataSize(*tensor);
    size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

Function Member(const Module& module, const char* name) {
  auto found = edgekit::Member(module, name);
  if (!found.has_value()) {
    throw std::runtime_error(std::string("the model's library has no function ") + name);
  }
  return found.value();
}

// A model gives one tensor, or a list of tensors and lists.
void Flatten(const Any& result, Tensors* outputs) {
  if (auto tensor = result.as<Tensor>()) {
    outputs->push_back(tensor.value());
    return;
  }
  for (const Any& part : result.cast<Array<Any>>()) Flatten(part, outputs);
}

template <typename Shape>
std::string Typed(DLDataType dtype, const Shape& shape) {
  std::string text = std::string(tvm::ffi::DLDataTypeToString(dtype)) + "[";
  const char* separator = "";
  for (int64_t extent : shape) {
    text += separator + std::to_string(extent);
    separator = ", ";
  }
  return text + "]";
}

void CheckInputs(const Tensors& inputs) {
  if (inputs.size() != model::kInputs.size()) {
    throw std::invalid_argument("the model takes " + std::to_string(model::kInputs.size()) +
                                " inputs, not " + std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string expected = TypeOf(model::kInputs[i]), found = TypeOf(inputs[i]);
    if (found != expected) {
      throw std::invalid_argument(std::string("the input ") + model::kInputs[i].name + " is " +
                                  expected + ", not " + found);
    }
  }
}

}  // namespace

Predictor::Predictor(const std::string& library)
    // The path needs a slash: without one, dlopen searches the system's folders.
    : library_(edgekit::LoadModule(library.find('/') == std::string::npos ? "./" + library
                                                                          : library)),
      machine_(edgekit::Call(Member(library_, "vm_load_executable")).cast<Module>()),
      main_(Member(machine_, "main")) {
  // The model finds TVM's runtime in this process. Some linkers would leave it out: nothing calls it.
  [[maybe_unused]] auto volatile runtime = &TVMBackendParallelLaunch;
  edgekit::Call(Member(machine_, "vm_initialization"), static_cast<int>(kDLCPU), 0,
                kPooledAllocator);
}

Tensors Predictor::Run(const Tensors& inputs) {
  CheckInputs(inputs);
  const Any result = edgekit::CallWith(main_, {inputs.begin(), inputs.end()});
  Tensors outputs;
  Flatten(result, &outputs);
  return outputs;
}

Tensor NewTensor(const model::TensorInfo& info) {
  return Tensor::FromNDAlloc(AlignedAllocator(), tvm::ffi::Shape(info.shape), info.dtype,
                             DLDevice{kDLCPU, 0});
}

std::string TypeOf(const model::TensorInfo& info) { return Typed(info.dtype, info.shape); }

std::string TypeOf(const Tensor& tensor) { return Typed(tensor.dtype(), tensor.shape()); }

}  // namespace app
