#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace edgekit {
namespace {

struct Rule {
  const char* dtype;
  double rtol, of_max, oracle_noise;
};

constexpr Rule kFloats[] = {
    {"float64", 1e-6, 1e-7, 0},
    {"float32", 1e-3, 1e-4, 5e-7},
    {"float16", 1e-2, 5e-3, 0},
    {"bfloat16", 4e-2, 2e-2, 0},
};
constexpr Rule kExact = {"", 0, 0, 0};
constexpr double kAllZero = 1e-7, kNoiseCap = 0.05, kFewElements = 2;
constexpr double kOnTies = 1, kShareOnTies = 0.25, kIn16Bits = 8;

template <typename Number>
Number At(const Tensor& tensor, size_t index) {
  Number value;
  std::memcpy(&value, static_cast<const char*>(tensor.data.get()) + index * sizeof value,
              sizeof value);
  return value;
}

double FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double FromBfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

double Element(const Tensor& tensor, size_t i) {
  const std::string& type = tensor.dtype;
  if (type == "float32") return At<float>(tensor, i);
  if (type == "float64") return At<double>(tensor, i);
  if (type == "float16") return FromHalf(At<uint16_t>(tensor, i));
  if (type == "bfloat16") return FromBfloat16(At<uint16_t>(tensor, i));
  if (type == "int8") return At<int8_t>(tensor, i);
  if (type == "int16") return At<int16_t>(tensor, i);
  if (type == "int32") return At<int32_t>(tensor, i);
  if (type == "int64") return static_cast<double>(At<int64_t>(tensor, i));
  if (type == "uint16") return At<uint16_t>(tensor, i);
  if (type == "uint32") return At<uint32_t>(tensor, i);
  if (type == "uint64") return static_cast<double>(At<uint64_t>(tensor, i));
  return At<uint8_t>(tensor, i);  // uint8, bool
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string Difference(const Tensor& expected, const Tensor& actual, const Json& spec,
                       const Json& leeway) {
  const std::string name = spec.At("name").Text();
  if (expected.dtype != actual.dtype || expected.shape != actual.shape) {
    return "the output " + name + " has another type or shape than was expected";
  }
  size_t count = 1;
  for (const int64_t extent : expected.shape) count *= static_cast<size_t>(extent);
  if (count == 0) return "";
  const size_t width = expected.bytes / count;
  double largest = 0;
  std::vector<double> errors(count), left(count);
  for (size_t i = 0; i < count; ++i) {
    left[i] = Element(expected, i);
    const double right = Element(actual, i);
    const bool same_bytes =
        std::memcmp(static_cast<const char*>(expected.data.get()) + i * width,
                    static_cast<const char*>(actual.data.get()) + i * width, width) == 0;
    const bool is_float = expected.dtype.find("float") != std::string::npos;
    const bool same = same_bytes || (std::isnan(left[i]) && std::isnan(right)) ||
                      (is_float && left[i] == right);
    if (std::isfinite(left[i])) largest = std::max(largest, std::fabs(left[i]));
    const bool finite = std::isfinite(left[i]) && std::isfinite(right);
    double error = finite ? std::fabs(right - left[i]) : std::numeric_limits<double>::infinity();
    if (error == 0) error = 1;  // two 64-bit integers may be one double
    errors[i] = same ? 0 : error;
  }

  const std::string& type = expected.dtype;
  const bool is_quantised =
      !spec.At("quantization").IsNull() && (type.rfind("int", 0) == 0 || type.rfind("uint", 0) == 0);
  Rule rule = kExact;
  for (const Rule& one : kFloats) {
    if (!is_quantised && type == one.dtype) rule = one;
  }
  double more = leeway.IsNull() ? 0 : leeway.At("allowed").Real();
  double share = leeway.IsNull() ? 0 : leeway.At("share").Real();
  if (is_quantised) {
    const bool is_16 = EndsWith(type, "int16");
    more = std::max(more, is_16 ? kIn16Bits : kOnTies);
    share = std::max(share, is_16 ? 1.0 : kShareOnTies);
  }
  double floor = std::min(rule.oracle_noise, kNoiseCap * largest);
  if (rule.of_max > 0 && largest == 0) floor = kAllZero;
  const auto outside = [&](double extra) {
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      const double own = std::isfinite(left[i]) ? rule.rtol * std::fabs(left[i]) : 0;
      if (!(errors[i] <= own + rule.of_max * largest + floor + extra)) ++found;
    }
    return found;
  };
  size_t wrong = outside(0);
  const double few = std::max(kFewElements, std::ceil(share * static_cast<double>(count)));
  if ((is_quantised || !leeway.IsNull()) && static_cast<double>(wrong) <= few) wrong = outside(more);
  if (wrong == 0) return "";
  return std::to_string(wrong) + " of " + std::to_string(count) + " elements of the output " + name +
         " are not what was expected";
}

}  // namespace edgekit
