#include "ed25519.h"

#include <cstdint>
#include <cstring>

#include "sha2.h"

namespace edgekit {
namespace {

using Bytes = unsigned char[32];  // a number, its lowest byte first

// A number modulo p = 2^255 - 19, in eight words of 32 bits, the lowest first. It may be above p.
struct Field {
  uint32_t word[8] = {};
};

constexpr int kWords = 8;

// Adds `carry` * 2^256, which is `carry` * 38.
void Fold(Field* value, uint64_t carry) {
  while (carry != 0) {
    carry *= 38;
    for (uint32_t& word : value->word) {
      carry += word;
      word = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
}

Field operator+(const Field& a, const Field& b) {
  Field sum;
  uint64_t carry = 0;
  for (int i = 0; i < kWords; ++i) {
    carry += static_cast<uint64_t>(a.word[i]) + b.word[i];
    sum.word[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  Fold(&sum, carry);
  return sum;
}

Field operator*(const Field& a, const Field& b) {
  uint32_t product[2 * kWords] = {};
  for (int i = 0; i < kWords; ++i) {
    uint64_t carry = 0;
    for (int k = 0; k < kWords; ++k) {
      carry += static_cast<uint64_t>(a.word[i]) * b.word[k] + product[i + k];
      product[i + k] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    product[i + kWords] = static_cast<uint32_t>(carry);
  }
  Field result;
  uint64_t carry = 0;
  for (int i = 0; i < kWords; ++i) {
    carry += static_cast<uint64_t>(product[i + kWords]) * 38 + product[i];
    result.word[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  Fold(&result, carry);
  return result;
}

Field Small(uint32_t value) {
  Field field;
  field.word[0] = value;
  return field;
}

// a * (p - 1), which is -a.
Field Negative(const Field& a) {
  Field minus_one;
  for (uint32_t& word : minus_one.word) word = 0xffffffff;
  minus_one.word[0] = 0xffffffff - 19;
  minus_one.word[7] = 0x7fffffff;
  return a * minus_one;
}

Field operator-(const Field& a, const Field& b) { return a + Negative(b); }

// `base` to the power of 2^bits - `less`, whose binary digits are ones but in the last eight.
Field Power(const Field& base, int bits, uint32_t less) {
  Field result = Small(1);
  for (int bit = bits - 1; bit >= 0; --bit) {
    result = result * result;
    const bool is_one = bit >= 8 || ((256 - less) >> bit & 1) != 0;
    if (is_one) result = result * base;
  }
  return result;
}

Field Inverse(const Field& a) { return Power(a, 255, 21); }  // p - 2

Field Unpacked(const unsigned char* bytes) {
  Field field;
  for (int i = 0; i < 32; ++i) field.word[i / 4] |= static_cast<uint32_t>(bytes[i]) << 8 * (i % 4);
  return field;
}

// The one form below p.
void Pack(const Field& field, Bytes& bytes) {
  Field left = field;
  for (int times = 0; times < 2; ++times) {  // below 2^256, p fits at most twice
    Field less = left;
    uint64_t carry = 19;
    for (uint32_t& word : less.word) {
      carry += word;
      word = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    // left + 19 >= 2^255 says that left >= p; without that bit it is left - p.
    if (carry != 0 || less.word[7] >> 31 != 0) {
      less.word[7] -= 0x80000000;
      left = less;
    }
  }
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(left.word[i / 4] >> 8 * (i % 4));
}

bool Same(const Field& a, const Field& b) {
  Bytes one, other;
  Pack(a, one);
  Pack(b, other);
  return std::memcmp(one, other, sizeof one) == 0;
}

bool IsOdd(const Field& a) {
  Bytes bytes;
  Pack(a, bytes);
  return (bytes[0] & 1) != 0;
}

// d of the curve: -121665 / 121666.
const Field& CurveD() {
  static const Field d = Negative(Small(121665) * Inverse(Small(121666)));
  return d;
}

// Extended coordinates: x = X/Z, y = Y/Z, x * y = T/Z.
struct Point {
  Field x, y, z, t;
};

// RFC 8032, 5.1.4; it holds for all pairs of points.
Point operator+(const Point& p, const Point& q) {
  const Field a = (p.y - p.x) * (q.y - q.x), b = (p.y + p.x) * (q.y + q.x);
  const Field c = p.t * q.t * CurveD(), d = p.z * q.z;
  const Field e = b - a, f = d + d - c - c, g = d + d + c + c, h = b + a;
  return {e * f, g * h, f * g, e * h};
}

Point Times(const Point& point, const std::string& scalar) {
  Point sum{Small(0), Small(1), Small(1), Small(0)};
  for (size_t i = scalar.size() * 8; i-- > 0;) {
    sum = sum + sum;
    if ((static_cast<unsigned char>(scalar[i / 8]) >> i % 8 & 1) != 0) sum = sum + point;
  }
  return sum;
}

// RFC 8032, 5.1.3. False if the bytes are no point.
bool Decode(const std::string& text, Point* point) {
  Bytes bytes, canonical;
  std::memcpy(bytes, text.data(), sizeof bytes);
  const bool is_odd = bytes[31] >> 7 != 0;
  bytes[31] &= 0x7f;
  const Field y = Unpacked(bytes), one = Small(1);
  Pack(y, canonical);
  if (std::memcmp(bytes, canonical, sizeof bytes) != 0) return false;
  const Field u = y * y - one, v = CurveD() * y * y + one;
  const Field v3 = v * v * v;
  Field x = u * v3 * Power(u * v3 * v3 * v, 252, 3);  // (p - 5) / 8
  if (Same(v * x * x, Negative(u))) {
    // The root of -1 is 2 to the power of (p - 1) / 4 = 2^253 - 5.
    x = x * Power(Small(2), 253, 5);
  } else if (!Same(v * x * x, u)) {
    return false;
  }
  if (Same(x, Small(0)) && is_odd) return false;
  if (IsOdd(x) != is_odd) x = Negative(x);
  *point = {x, y, one, x * y};
  return true;
}

bool IsBelowOrder(const std::string& scalar) {
  // 2^252 + 27742317777372353535851937790883648493
  static constexpr Bytes kOrder = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                   0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                   0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
  for (int i = 31; i >= 0; --i) {
    const auto byte = static_cast<unsigned char>(scalar[static_cast<size_t>(i)]);
    if (byte != kOrder[i]) return byte < kOrder[i];
  }
  return false;
}

}  // namespace

bool Verifies(const std::string& key, const std::string& signature, const std::string& message) {
  if (key.size() != 32 || signature.size() != 64) return false;
  const std::string r = signature.substr(0, 32), s = signature.substr(32);
  static const std::string kBase = "\x58" + std::string(31, '\x66');  // y = 4/5, x even
  Point a, base;
  if (!IsBelowOrder(s) || !Decode(key, &a) || !Decode(kBase, &base)) return false;
  Sha2<uint64_t> hash;
  const std::string hashed = r + key + message;
  hash.Add(hashed.data(), hashed.size());
  const Point minus_a{Negative(a.x), a.y, a.z, Negative(a.t)};
  const Point found = Times(base, s) + Times(minus_a, hash.Digest());
  const Field inverse = Inverse(found.z);
  Bytes bytes;
  Pack(found.y * inverse, bytes);
  if (IsOdd(found.x * inverse)) bytes[31] |= 0x80;
  return std::memcmp(bytes, r.data(), sizeof bytes) == 0;
}

}  // namespace edgekit
