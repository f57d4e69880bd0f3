#include "model.h"

#include <algorithm>
#include <ctime>

#include "json.h"

namespace edgekit {

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t Median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void Timeline::Call(size_t kernel, int64_t start, int64_t nanoseconds) {
  const char* comma = kernels_.empty() ? "" : ",";
  kernels_ += comma + std::to_string(kernel);
  starts_ += comma + std::to_string(start);
  durations_ += comma + std::to_string(nanoseconds);
}

std::string Timeline::Json(int64_t nanoseconds) const {
  return Object()
      .Int("nanoseconds", nanoseconds)
      .Raw("kernels", "[" + kernels_ + "]")
      .Raw("starts", "[" + starts_ + "]")
      .Raw("durations", "[" + durations_ + "]")
      .Str();
}

std::string AsPath(const std::string& library) {
  return library.find('/') == std::string::npos ? "./" + library : library;
}

}  // namespace edgekit
