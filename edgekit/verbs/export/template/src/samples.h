// Inputs and outputs as files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ends.h"
#include "meaning.h"
#include "picture.h"
#include "predictor.h"

namespace app {

using Paths = std::vector<std::filesystem::path>;

struct Request {
  Tensors inputs;
  // The last input that was a picture, where there is one: which, the pixels, and its place in the
  // model's own.
  int seen = -1;
  std::shared_ptr<app_picture> picture;
  app_placement place = {};
};

// One file for each input, in the order of model::kInputs: .npy, a picture or a camera where
// [preprocess] says what to do with it, or bare bytes: a frame if there is a `frame`, the tensor
// otherwise.
Request ReadInputs(const Paths& files, const app_frame* frame = nullptr);

// What the outputs mean, if [postprocess] says it; a table is printed to each of `out`, and what was
// found drawn into the picture, unless `drawing` is empty.
void Explain(const Request& request, const Tensors& outputs, const std::vector<FILE*>& out,
             const std::filesystem::path& drawing);

// Writes output-0.npy, output-1.npy, ... into a folder that exists.
void WriteOutputs(const std::filesystem::path& folder, const Tensors& outputs);

// "features float32[1, 4, 8, 8]: 0.5 0 0.25 ..., the largest is 1.5 at 17"
std::string Describe(size_t output, const Tensor& tensor);

}  // namespace app
