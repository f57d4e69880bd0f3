// SHA-256 and SHA-512, as FIPS 180-4 defines them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace edgekit {

template <typename Word>  // uint32_t: SHA-256; uint64_t: SHA-512
class Sha2 {
 public:
  Sha2();
  void Add(const void* data, size_t size);
  std::string Digest();  // raw bytes; call it once

 private:
  void Compress();

  Word state_[8];
  unsigned char block_[16 * sizeof(Word)];
  uint64_t length_ = 0;  // bytes so far; SHA-512's upper half of the length stays zero
};

std::string Hex(const std::string& bytes);

// In hexadecimal digits.
std::string Sha256Of(const std::string& data);

// Of up to `size` bytes from `offset`; empty if the file can't be read.
std::string Sha256OfFile(const std::string& path, uint64_t offset = 0, uint64_t size = UINT64_MAX);

}  // namespace edgekit
