// Compares a model's outputs with the expected ones, by the rules of edgekit/models/comparison.py.
#pragma once

#include <string>

#include "json_reader.h"
#include "tensor.h"

namespace edgekit {

// `spec` is the output's entry in a bundle's manifest, `leeway` null or the vector's extra tolerance.
// Returns what differs; empty if they agree.
std::string Difference(const Tensor& expected, const Tensor& actual, const Json& spec,
                       const Json& leeway);

}  // namespace edgekit
