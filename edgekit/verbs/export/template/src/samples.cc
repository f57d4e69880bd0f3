#include "samples.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "npy.h"

namespace app {

namespace fs = std::filesystem;
using tvm::ffi::Tensor;

namespace {

constexpr int64_t kShown = 6;

Tensor ReadBytes(const fs::path& path, const model::TensorInfo& info) {
  Tensor tensor = NewTensor(info);
  uintmax_t expected = tvm::ffi::GetDataSize(tensor);
  if (fs::file_size(path) != expected) {
    throw std::invalid_argument(path.filename().string() + " is not .npy, and has " +
                                std::to_string(fs::file_size(path)) + " bytes where " +
                                TypeOf(info) + " has " + std::to_string(expected));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(expected))) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return tensor;
}

Tensor ReadInput(const fs::path& path, const model::TensorInfo& info) {
  if (!fs::is_regular_file(path)) throw std::invalid_argument(path.string() + " is not a file");
  return path.extension() == ".npy" ? edgekit::ReadNpy(path.string()) : ReadBytes(path, info);
}

// Returns nothing for half-precision floats.
std::optional<double> ValueAt(const Tensor& tensor, int64_t index) {
  const void* data = tensor.data_ptr();
  DLDataType dtype = tensor.dtype();
  switch (dtype.code << 8 | dtype.bits) {
    case kDLFloat << 8 | 32: return static_cast<const float*>(data)[index];
    case kDLFloat << 8 | 64: return static_cast<const double*>(data)[index];
    case kDLInt << 8 | 8: return static_cast<const int8_t*>(data)[index];
    case kDLInt << 8 | 16: return static_cast<const int16_t*>(data)[index];
    case kDLInt << 8 | 32: return static_cast<const int32_t*>(data)[index];
    case kDLInt << 8 | 64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
    case kDLBool << 8 | 8:
    case kDLUInt << 8 | 8: return static_cast<const uint8_t*>(data)[index];
    case kDLUInt << 8 | 16: return static_cast<const uint16_t*>(data)[index];
    case kDLUInt << 8 | 32: return static_cast<const uint32_t*>(data)[index];
    case kDLUInt << 8 | 64:
      return static_cast<double>(static_cast<const uint64_t*>(data)[index]);
    default: return std::nullopt;
  }
}

}  // namespace

Tensors ReadInputs(const Paths& files) {
  if (files.size() != model::kInputs.size()) {
    throw std::invalid_argument("the model takes " + std::to_string(model::kInputs.size()) +
                                " inputs, not " + std::to_string(files.size()));
  }
  Tensors inputs;
  for (size_t i = 0; i < files.size(); ++i) {
    inputs.push_back(ReadInput(files[i], model::kInputs[i]));
  }
  return inputs;
}

void WriteOutputs(const fs::path& folder, const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    edgekit::WriteNpy((folder / ("output-" + std::to_string(i) + ".npy")).string(), outputs[i]);
  }
}

std::string Describe(size_t output, const Tensor& tensor) {
  std::ostringstream text;
  if (output < model::kOutputs.size()) text << model::kOutputs[output].name << ' ';
  text << TypeOf(tensor) << ':';
  int64_t count = tensor.numel();
  if (count == 0 || !ValueAt(tensor, 0)) return text.str() + " not shown";
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i < kShown) text << ' ' << *ValueAt(tensor, i);
    if (*ValueAt(tensor, i) > *ValueAt(tensor, largest)) largest = i;
  }
  if (count > kShown) text << " ...";
  text << ", the largest is " << *ValueAt(tensor, largest) << " at " << largest;
  return text.str();
}

}  // namespace app
