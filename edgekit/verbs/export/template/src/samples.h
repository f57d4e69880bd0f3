// Inputs and outputs as files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "predictor.h"

namespace app {

using Paths = std::vector<std::filesystem::path>;

// One file for each input, in the order of model::kInputs: .npy, or the bare bytes of the tensor.
Tensors ReadInputs(const Paths& files);

// Writes output-0.npy, output-1.npy, ... into a folder that exists.
void WriteOutputs(const std::filesystem::path& folder, const Tensors& outputs);

// "features float32[1, 4, 8, 8]: 0.5 0 0.25 ..., the largest is 1.5 at 17"
std::string Describe(size_t output, const Tensor& tensor);

}  // namespace app
