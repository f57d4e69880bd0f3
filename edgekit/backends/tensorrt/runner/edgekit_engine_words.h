// What TensorRT says to its logger, as errors that say what to do. No header of NVIDIA's is needed.
#pragma once

#include <algorithm>
#include <cctype>
#include <mutex>
#include <string>
#include <vector>

namespace edgekit {
namespace tensorrt {

// The last errors, so that a call that only says "no" can be explained.
class Messages {
 public:
  void error(const std::string& text) {
    std::lock_guard<std::mutex> lock(access_);
    if (errors_.size() == kKept) errors_.erase(errors_.begin());
    errors_.push_back(one_line(text));
  }

  void clear() {
    std::lock_guard<std::mutex> lock(access_);
    errors_.clear();
  }

  std::vector<std::string> errors() const {
    std::lock_guard<std::mutex> lock(access_);
    return errors_;
  }

 private:
  static constexpr size_t kKept = 8;
  static constexpr size_t kLongest = 400;
  mutable std::mutex access_;
  std::vector<std::string> errors_;

  static std::string one_line(const std::string& text) {
    std::string line = text.substr(0, kLongest);
    for (char& c : line)
      if (std::iscntrl(static_cast<unsigned char>(c))) c = ' ';
    return line;
  }
};

inline bool says(const std::string& text, const char* part) {
  std::string low = text;
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low.find(part) != std::string::npos;
}

// What can be done about it; empty where nothing is known.
inline std::string hint_for(const std::string& message) {
  struct Known {
    const char* part;
    const char* hint;
  };
  // The particular before the general.
  static const Known known[] = {
      {"out of memory", "free memory on the device, or lower workspace_mb of [offload.tensorrt]"},
      {"outofmemory", "free memory on the device, or lower workspace_mb of [offload.tensorrt]"},
      {"cannot allocate", "free memory on the device, or lower workspace_mb of [offload.tensorrt]"},
      {"insufficient workspace", "raise workspace_mb of [offload.tensorrt]"},
      {"dla", "set dla_core = -1 in [offload.tensorrt], or precision = \"fp16\""},
      {"no importer registered", "keep the operator in TVM with [offload] never"},
      {"plugin not found", "keep the operator in TVM with [offload] never"},
      {"unsupported", "keep the operator in TVM with [offload] never"},
      {"not supported", "keep the operator in TVM with [offload] never"},
      {"driver version is insufficient", "install the driver that this CUDA wants"},
      {"no cuda-capable device", "run it where there is a GPU of NVIDIA's"},
      {"cuda initialization", "run it where there is a GPU of NVIDIA's"},
      {"could not find any implementation", "raise workspace_mb or builder_level"},
  };
  for (const Known& one : known)
    if (says(message, one.part)) return one.hint;
  return "";
}

// "TensorRT could not build the engine: <the first error>; <hint>"
inline std::string explained(const std::string& doing, const std::vector<std::string>& errors) {
  std::string text = "TensorRT could not " + doing;
  if (errors.empty()) return text + ", and did not say why";
  text += ": " + errors.front();
  for (const std::string& error : errors) {
    const std::string hint = hint_for(error);
    if (!hint.empty()) return text + "; " + hint;
  }
  return text;
}

}  // namespace tensorrt
}  // namespace edgekit
