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

void Check(const char* failure, const fs::path& path) {
  if (failure != nullptr) throw std::invalid_argument(path.string() + ": " + failure);
}

void ReadInput(const fs::path& path, size_t index, const app_frame* frame, Request& request) {
  const model::TensorInfo& info = model::kInputs[index];
  const app_rule& rule = app_rules[index];
  const std::string name = path.string();
  const bool camera = !fs::is_directory(path) && app_is_camera(name.c_str());
  if (!camera && !fs::is_regular_file(path)) throw std::invalid_argument(name + " is not a file");
  const bool picture = app_is_picture_name(name.c_str());
  if (path.extension() == ".npy" || (!camera && !picture && (frame == nullptr || rule.height == 0))) {
    request.inputs.push_back(path.extension() == ".npy" ? edgekit::ReadNpy(name)
                                                        : ReadBytes(path, info));
    return;
  }
  if (rule.height == 0) {
    throw std::invalid_argument(std::string("the input ") + info.name +
                                " takes no picture: [preprocess] says nothing about it");
  }
  request.picture.reset(new app_picture(), [](app_picture* old) {
    app_free_picture(old);
    delete old;
  });
  app_picture* read = request.picture.get();
  Check(camera    ? app_read_camera(name.c_str(), frame, &rule, read)
        : picture ? app_read_picture(name.c_str(), read)
                  : app_read_frame(name.c_str(), frame, read),
        path);
  request.inputs.push_back(NewTensor(info));
  request.seen = static_cast<int>(index);
  Check(app_prepare(read, &rule, request.inputs.back().data.get(), &request.place), path);
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

Request ReadInputs(const Paths& files, const app_frame* frame) {
  if (files.size() != model::kInputs.size()) {
    throw std::invalid_argument("the model takes " + std::to_string(model::kInputs.size()) +
                                " inputs, not " + std::to_string(files.size()));
  }
  Request request;
  for (size_t i = 0; i < files.size(); ++i) ReadInput(files[i], i, frame, request);
  return request;
}

void Explain(const Request& request, const Tensors& outputs, const std::vector<FILE*>& out,
             const fs::path& drawing) {
  if (app_means.task == APP_NOTHING) return;
  std::vector<const void*> data;
  for (const Tensor& output : outputs) data.push_back(output.data.get());
  const bool placed = request.seen >= 0 && app_rules[request.seen].on_board;
  app_meaning meaning;
  Check(app_read_meaning(data.data(), placed ? &request.place : nullptr, &meaning), "the outputs");
  for (FILE* file : out) app_print_meaning(file, &meaning);
  const char* failure = nullptr;
  if (!drawing.empty() && !placed) failure = "the program was given no picture to draw into";
  if (!drawing.empty() && placed) {
    app_picture& canvas = *request.picture;
    failure = app_in_colour(&canvas);
    if (failure == nullptr) {
      app_draw_meaning(&meaning, data.data(), &request.place, &app_rules[request.seen], &canvas);
      failure = app_write_picture(drawing.c_str(), &canvas);
    }
  }
  app_free_meaning(&meaning);
  Check(failure, drawing);
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
