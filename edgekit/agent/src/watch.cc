// watch FILE...: reads sensors during a measurement until it is killed. Each line has the time in
// nanoseconds and the content of each file.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "commands.h"

namespace edgekit {
namespace {

constexpr size_t kLongestValue = 64;
constexpr char kMemoryOfGpu[] = "/nvmap/iovmm/clients";

bool EndsWith(const std::string& path, const std::string& end) {
  return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

// A Jetson's table of GPU memory by process, of which only the total's line matters.
std::string Total(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("total", 0) != 0) continue;
    std::string value;  // with single blanks
    for (char c : line.substr(0, 4 * kLongestValue)) {
      if (c == '\t') c = ' ';
      if (c != ' ' || (!value.empty() && value.back() != ' ')) value += c;
    }
    return value.substr(0, kLongestValue);
  }
  return "";
}

std::string Held(const std::string& path) {
  if (EndsWith(path, kMemoryOfGpu)) return Total(path);
  char buffer[kLongestValue];
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return "";
  ssize_t size = read(file, buffer, sizeof buffer);
  close(file);
  std::string value;
  for (ssize_t i = 0; i < size; ++i) {
    const char c = buffer[i];
    if (c == '\n' || c == '\0') break;
    value += c == '\t' ? ' ' : c;
  }
  return value;
}

}  // namespace

int Watch(Arguments arguments) {
  const double interval = arguments.Number("--interval", 0.05);
  const auto files = arguments.Rest(1, "watch [--interval SECONDS] FILE...");
  timespec pause{static_cast<time_t>(interval), 0};
  pause.tv_nsec = static_cast<long>((interval - static_cast<double>(pause.tv_sec)) * 1e9);
  while (true) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::string line = std::to_string(now.tv_sec * 1000000000LL + now.tv_nsec);
    for (const std::string& file : files) line += "\t" + Held(file);
    if (std::puts(line.c_str()) < 0 || std::fflush(stdout) != 0) return 1;
    nanosleep(&pause, nullptr);
  }
}

}  // namespace edgekit
