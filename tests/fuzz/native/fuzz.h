// Data as a file, for parsers that read files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

// The path of a file with this data. The next call makes it another.
inline std::string InMemory(const uint8_t* data, size_t size) {
  static int fd = -1;
  if (fd >= 0) close(fd);
  fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) abort();
  lseek(fd, 0, SEEK_SET);
  return "/proc/self/fd/" + std::to_string(fd);
}
