// The agent's requests, as they come on its standard input.
#include "requests.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "fuzz.h"

// model.cc has it, with all of TVM's runtime.
namespace edgekit {
int64_t Now() {
  static int64_t calls = 0;
  return ++calls;
}
}  // namespace edgekit

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = open(InMemory(data, size).c_str(), O_RDONLY);
  if (fd < 0 || dup2(fd, STDIN_FILENO) < 0) abort();
  close(fd);
  try {
    edgekit::Requests requests;
    while (true) {
      const std::vector<std::string> words = requests.Next();
      if (words.empty()) break;
      if (words[0] == "store" && words.size() > 1) {
        requests.Store(std::strtoull(words[1].c_str(), nullptr, 10), "/dev/null");
      }
    }
  } catch (const std::runtime_error&) {
  }
  return 0;
}
