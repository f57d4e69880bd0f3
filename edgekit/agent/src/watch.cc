// Reads sensors again and again while something else is measured: a line for each time, with the
// time in nanoseconds and what each file holds, until it is killed.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "commands.h"

namespace edgekit {
namespace {

constexpr size_t kLongestValue = 64;

std::string Held(const std::string& path) {
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
