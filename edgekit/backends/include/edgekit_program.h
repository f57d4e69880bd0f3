// A region as lines of text, which edgekit/backends/plain/program.py writes:
//   input 1,3,224,224 image            a value that the caller gives
//   constant 128 16,3,3,3              one among the weights, by its place there
//   value 1,16,224,224                 one that a layer makes
//   layer convolution reads=0 makes=3 weight=1 strides=2,2 name=/stem/Conv
//   outputs 3
// Values are numbered in their order. They are float32, or int32 where their layer says so; after
// input8, constant8 and value8 they are int8.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "edgekit_region.h"

namespace edgekit {

using Extents = std::vector<int64_t>;

inline int64_t count_of(const Extents& extents) {
  int64_t count = 1;
  for (int64_t extent : extents) count *= extent;
  return count;
}

struct Value {
  enum Role { kInput, kConstant, kMade };
  Role role;
  Extents extents;
  std::string name;
  const float* data;  // of a constant
  size_t width;       // bytes of an element
};

class Layer {
 public:
  std::string kind, name;
  std::vector<int> reads, makes;
  std::map<std::string, std::string> settings;

  bool has(const std::string& key) const { return settings.count(key) != 0; }

  const std::string& word(const std::string& key) const {
    const auto found = settings.find(key);
    if (found == settings.end()) throw std::invalid_argument("it has no " + key);
    return found->second;
  }

  Extents integers(const std::string& key) const {
    Extents values;
    std::istringstream words(word(key));
    for (std::string one; std::getline(words, one, ',');)
      values.push_back(std::strtoll(one.c_str(), nullptr, 10));
    return values;
  }

  int64_t integer(const std::string& key) const { return integers(key).at(0); }

  std::vector<float> numbers(const std::string& key) const {
    std::vector<float> values;
    if (!has(key)) return values;
    std::istringstream words(word(key));
    for (std::string one; std::getline(words, one, ',');)
      values.push_back(static_cast<float>(std::strtod(one.c_str(), nullptr)));
    return values;
  }
};

struct Program {
  std::vector<Value> values;
  std::vector<Layer> layers;
  std::vector<int> outputs;

  Program(const char* const* lines, size_t count, Blob weights) {
    for (size_t i = 0; i < count; ++i) read(lines[i], weights);
  }

  std::vector<int> inputs() const {
    std::vector<int> found;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].role == Value::kInput) found.push_back(static_cast<int>(i));
    return found;
  }

 private:
  void read(const std::string& line, Blob weights) {
    std::istringstream words(line);
    std::string role, extents;
    words >> role;
    const bool narrow = role.back() == '8';
    if (narrow) role.pop_back();
    if (role == "layer") return read_layer(words);
    if (role == "outputs") {
      words >> extents;
      for (int64_t number : listed(extents)) outputs.push_back(static_cast<int>(number));
      return;
    }
    Value value{Value::kMade, {}, {}, nullptr, narrow ? 1u : sizeof(float)};
    size_t place = 0;
    if (role == "constant") words >> place;
    words >> extents >> std::ws;
    std::getline(words, value.name);
    value.extents = listed(extents);
    if (role == "input") value.role = Value::kInput;
    if (role == "constant") {
      const size_t size = static_cast<size_t>(count_of(value.extents)) * value.width;
      if (place > weights.size || size > weights.size - place)
        throw std::runtime_error("the region's weights are cut off");
      value.role = Value::kConstant;
      value.data = reinterpret_cast<const float*>(weights.data + place);
    }
    values.push_back(value);
  }

  void read_layer(std::istringstream& words) {
    Layer layer;
    words >> layer.kind;
    for (std::string word; words >> word;) {
      const size_t sign = word.find('=');
      const std::string key = word.substr(0, sign);
      std::string value = word.substr(sign + 1);
      if (key == "name") {
        std::string rest;
        std::getline(words, rest);
        layer.name = value + rest;
      } else if (key == "reads" || key == "makes") {
        for (int64_t number : listed(value))
          (key == "reads" ? layer.reads : layer.makes).push_back(static_cast<int>(number));
      } else {
        layer.settings[key] = value;
      }
    }
    layers.push_back(layer);
  }

  static Extents listed(const std::string& text) {
    Layer one;
    one.settings["values"] = text;
    return one.integers("values");
  }
};

inline bool all_finite(const float* values, size_t count) {
  const uint32_t exponent = 0x7f800000u;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bad |= (bits & exponent) == exponent;
  }
  return bad == 0;
}

// The program's or TVM's own number, as everything on a device does, unless a project says
// otherwise; 0 for none.
inline int threads_wanted(int wanted) {
  if (wanted > 0) return wanted;
  if (const int own = program_threads()) return own;
  const char* tvm = std::getenv("TVM_NUM_THREADS");
  const int found = tvm == nullptr ? 0 : std::atoi(tvm);
  return found > 0 ? found : 0;
}

}  // namespace edgekit
