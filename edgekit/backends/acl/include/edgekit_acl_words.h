// A program's words in ACL's: shapes, activations, quantisation.
#pragma once

#include <arm_compute/core/TensorInfo.h>
#include <arm_compute/core/Types.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "edgekit_program.h"

namespace edgekit {
namespace acl {

namespace arm = arm_compute;
using Info = arm::ActivationLayerInfo;

// ACL counts axes from the innermost.
inline arm::TensorShape shape_of(const Extents& extents) {
  arm::TensorShape shape;
  for (size_t i = 0; i < extents.size(); ++i)
    shape.set(i, static_cast<size_t>(extents[extents.size() - 1 - i]), false);
  return shape;
}

inline Info curve_of(const Layer& layer) {
  using Function = Info::ActivationFunction;
  if (!layer.has("curve")) return Info();
  const std::string& name = layer.word("curve");
  const std::vector<float> given = layer.numbers("curve_values");
  if (name == "relu") return Info(Function::RELU);
  if (name == "leakyrelu") return Info(Function::LEAKY_RELU, given.at(0));
  if (name == "clip") return Info(Function::LU_BOUNDED_RELU, given.at(1), given.at(0));
  if (name == "sigmoid") return Info(Function::LOGISTIC);
  if (name == "tanh") return Info(Function::TANH, 1.f, 1.f);
  if (name == "elu") return Info(Function::ELU, given.at(0));
  if (name == "abs") return Info(Function::ABS);
  if (name == "square") return Info(Function::SQUARE);
  if (name == "sqrt") return Info(Function::SQRT);
  if (name == "hard_swish" || name == "hard_swish_6") return Info(Function::HARD_SWISH);
  throw std::invalid_argument("no activation is called " + name);
}

inline arm::TensorInfo floats_of(const Extents& extents) {
  return arm::TensorInfo(shape_of(extents), 1, arm::DataType::F32);
}

inline arm::ReductionOperation reduction_of(const std::string& name) {
  using Operation = arm::ReductionOperation;
  if (name == "sum") return Operation::SUM;
  if (name == "mean") return Operation::MEAN_SUM;
  if (name == "max") return Operation::MAX;
  if (name == "min") return Operation::MIN;
  if (name == "prod") return Operation::PROD;
  throw std::invalid_argument("no reduction is called " + name);
}

// Where a piece of some extents lies in a tensor, in ACL's order of axes.
inline std::pair<arm::Coordinates, arm::Coordinates> piece_of(const Extents& starts,
                                                              const Extents& extents) {
  std::pair<arm::Coordinates, arm::Coordinates> ends;
  for (size_t i = 0; i < extents.size(); ++i) {
    const size_t axis = extents.size() - 1 - i;
    ends.first.set(i, static_cast<int>(starts[axis]));
    ends.second.set(i, static_cast<int>(starts[axis] + extents[axis]));
  }
  return ends;
}

inline arm::DataType stored_type(const Layer& layer) {
  return layer.integer("unsigned") ? arm::DataType::QASYMM8 : arm::DataType::QASYMM8_SIGNED;
}

// Stored integers; images have their channels where the model has them.
inline arm::TensorInfo stored_of(const Layer& layer, const Extents& extents, arm::DataType type,
                                 const arm::QuantizationInfo& steps) {
  arm::TensorInfo info(shape_of(extents), 1, type, steps);
  if (extents.size() > 2 && layer.integer("channels_last"))
    info.set_data_layout(arm::DataLayout::NHWC);
  return info;
}

inline arm::TensorInfo weights_of(const Layer& layer, const Extents& extents,
                                  const std::vector<float>& scales) {
  if (layer.integer("scale_a_channel"))
    return stored_of(layer, extents, arm::DataType::QSYMM8_PER_CHANNEL, scales);
  const int zero = layer.has("weight_zero") ? static_cast<int>(layer.integer("weight_zero")) : 0;
  // Weights with one scale in convolutions of int8, and all of dense layers, are stored as inputs.
  return stored_of(layer, extents, stored_type(layer), {scales[0], zero});
}

}  // namespace acl
}  // namespace edgekit
