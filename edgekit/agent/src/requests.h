// What somebody asks for on our input: words, a line each, after a line with their number; bytes
// that belong to a request come right after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace edgekit {

class Requests {
 public:
  // The next request; empty at the end of the input. Throws std::runtime_error where it is none.
  std::vector<std::string> Next();

  // Stores the next bytes of the input in a file. Says why where that fails; the bytes are gone then
  // too, and the next request can be read.
  std::string Store(uint64_t bytes, const std::string& path);

  // Whether the input has ended, having waited for up to so long or for `other` to be readable.
  // What comes meanwhile is kept for later.
  bool Ended(int other, int milliseconds);

 private:
  bool Fill();
  std::string Line();

  std::string buffer_;
  size_t start_ = 0;
  bool ended_ = false;
};

}  // namespace edgekit
