#include "samples.h"

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "npy.h"

namespace app {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kShown = 6;

Tensor ReadBytes(const fs::path& path, const model::TensorInfo& info) {
  Tensor tensor = NewTensor(info);
  uintmax_t expected = tensor.bytes;
  if (fs::file_size(path) != expected) {
    throw std::invalid_argument(path.filename().string() + " is not .npy, and has " +
                                std::to_string(fs::file_size(path)) + " bytes where " +
                                TypeOf(info) + " has " + std::to_string(expected));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(tensor.data.get()), static_cast<std::streamsize>(expected))) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return tensor;
}

Tensor ReadInput(const fs::path& path, const model::TensorInfo& info) {
  if (!fs::is_regular_file(path)) throw std::invalid_argument(path.string() + " is not a file");
  return path.extension() == ".npy" ? edgekit::ReadNpy(path.string()) : ReadBytes(path, info);
}

template <typename Number>
double At(const void* data, int64_t index) {
  return static_cast<double>(static_cast<const Number*>(data)[index]);
}

using Reader = double (*)(const void* data, int64_t index);

// Returns nothing for half-precision floats.
Reader ReaderOf(const std::string& dtype) {
  static const std::map<std::string, Reader> readers = {
      {"float32", At<float>},   {"float64", At<double>},  {"int8", At<int8_t>},
      {"int16", At<int16_t>},   {"int32", At<int32_t>},   {"int64", At<int64_t>},
      {"uint8", At<uint8_t>},   {"uint16", At<uint16_t>}, {"uint32", At<uint32_t>},
      {"uint64", At<uint64_t>}, {"bool", At<uint8_t>},
  };
  const auto found = readers.find(dtype);
  return found == readers.end() ? nullptr : found->second;
}

int64_t CountOf(const Tensor& tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.shape) count *= extent;
  return count;
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
  const int64_t count = CountOf(tensor);
  const Reader value = ReaderOf(tensor.dtype);
  if (count == 0 || value == nullptr) return text.str() + " not shown";
  const void* data = tensor.data.get();
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i < kShown) text << ' ' << value(data, i);
    if (value(data, i) > value(data, largest)) largest = i;
  }
  if (count > kShown) text << " ...";
  text << ", the largest is " << value(data, largest) << " at " << largest;
  return text.str();
}

}  // namespace app
