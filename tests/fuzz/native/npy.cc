// The agent's reader of tensors.
#include "npy.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = InMemory(data, size);
  try {
    edgekit::ReadNpy(path);
  } catch (const std::runtime_error&) {
  }
  return 0;
}
