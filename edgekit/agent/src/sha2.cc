#include "sha2.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace edgekit {
namespace {

// The first 64 bits behind the point of the cube roots of the first primes, and of the square roots
// of the first eight. SHA-256 uses the first 32 bits of each.
constexpr uint64_t kRound[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};
constexpr uint64_t kStart[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

template <typename Word>
struct Rotations;  // FIPS 180-4, 4.1: three of each big sigma, two and a shift of each small one

template <>
struct Rotations<uint32_t> {
  static constexpr int kRounds = 64, kBig0[] = {2, 13, 22}, kBig1[] = {6, 11, 25},
                       kSmall0[] = {7, 18, 3}, kSmall1[] = {17, 19, 10};
};

template <>
struct Rotations<uint64_t> {
  static constexpr int kRounds = 80, kBig0[] = {28, 34, 39}, kBig1[] = {14, 18, 41},
                       kSmall0[] = {1, 8, 7}, kSmall1[] = {19, 61, 6};
};

template <typename Word>
constexpr int kBits = static_cast<int>(8 * sizeof(Word));

template <typename Word>
Word Rotated(Word word, int by) {
  return static_cast<Word>(word >> by | word << (kBits<Word> - by));
}

template <typename Word>
Word Big(Word word, const int (&by)[3]) {
  return Rotated(word, by[0]) ^ Rotated(word, by[1]) ^ Rotated(word, by[2]);
}

template <typename Word>
Word Small(Word word, const int (&by)[3]) {
  return Rotated(word, by[0]) ^ Rotated(word, by[1]) ^ (word >> by[2]);
}

template <typename Word>
Word FirstBits(uint64_t value) {
  return static_cast<Word>(value >> (64 - kBits<Word>));
}

}  // namespace

template <typename Word>
Sha2<Word>::Sha2() {
  for (int i = 0; i < 8; ++i) state_[i] = FirstBits<Word>(kStart[i]);
}

template <typename Word>
void Sha2<Word>::Add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (; size > 0; --size) {
    block_[length_++ % sizeof block_] = *bytes++;
    if (length_ % sizeof block_ == 0) Compress();
  }
}

template <typename Word>
std::string Sha2<Word>::Digest() {
  const uint64_t bits = length_ * 8;
  const unsigned char one = 0x80, zero = 0;
  Add(&one, 1);
  while (length_ % sizeof block_ != sizeof block_ - 2 * sizeof(Word)) Add(&zero, 1);
  for (size_t k = 8; k < 2 * sizeof(Word); ++k) Add(&zero, 1);
  for (int shift = 56; shift >= 0; shift -= 8) {
    const auto byte = static_cast<unsigned char>(bits >> shift);
    Add(&byte, 1);
  }
  std::string digest;
  for (const Word word : state_) {
    for (int shift = kBits<Word> - 8; shift >= 0; shift -= 8) {
      digest += static_cast<char>(word >> shift & 0xff);
    }
  }
  return digest;
}

template <typename Word>
void Sha2<Word>::Compress() {
  using Turns = Rotations<Word>;
  Word words[Turns::kRounds];
  for (int i = 0; i < 16; ++i) {
    words[i] = 0;
    for (size_t k = 0; k < sizeof(Word); ++k) {
      words[i] = static_cast<Word>(words[i] << 8 | block_[i * sizeof(Word) + k]);
    }
  }
  for (int i = 16; i < Turns::kRounds; ++i) {
    words[i] = Small(words[i - 2], Turns::kSmall1) + words[i - 7] +
               Small(words[i - 15], Turns::kSmall0) + words[i - 16];
  }
  Word a = state_[0], b = state_[1], c = state_[2], d = state_[3];
  Word e = state_[4], f = state_[5], g = state_[6], h = state_[7];
  for (int i = 0; i < Turns::kRounds; ++i) {
    const Word first = h + Big(e, Turns::kBig1) + ((e & f) ^ (~e & g)) +
                       FirstBits<Word>(kRound[i]) + words[i];
    const Word second = Big(a, Turns::kBig0) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  const Word added[] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += added[i];
}

template class Sha2<uint32_t>;
template class Sha2<uint64_t>;

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    for (const int nibble : {byte >> 4, byte & 15}) text += "0123456789abcdef"[nibble];
  }
  return text;
}

std::string Sha256Of(const std::string& data) {
  Sha2<uint32_t> hash;
  hash.Add(data.data(), data.size());
  return Hex(hash.Digest());
}

std::string Sha256OfFile(const std::string& path, uint64_t offset, uint64_t size) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr || fseeko(file.get(), static_cast<off_t>(offset), SEEK_SET) != 0) return "";
  Sha2<uint32_t> hash;
  char block[1 << 16];
  while (size > 0) {
    const size_t asked = size < sizeof block ? static_cast<size_t>(size) : sizeof block;
    const size_t count = std::fread(block, 1, asked, file.get());
    if (count == 0) break;
    hash.Add(block, count);
    size -= count;
  }
  return std::ferror(file.get()) != 0 ? "" : Hex(hash.Digest());
}

}  // namespace edgekit
