// Memory through which tensors go to an engine and back: asked for once, used for every call.
//
// `Memory` has static functions, any of which may throw:
//   void* host(size_t); void free_host(void*); void* device(size_t); void free_device(void*);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace edgekit {
namespace tensorrt {

// Widen integers of 32 bits to 64; `to` has room for `bytes`.
inline void lengthen(const void* from, void* to, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(int64_t); ++i) {
    int32_t given;
    std::memcpy(&given, static_cast<const char*>(from) + i * sizeof(given), sizeof(given));
    const int64_t wanted = given;
    std::memcpy(static_cast<char*>(to) + i * sizeof(wanted), &wanted, sizeof(wanted));
  }
}

template <typename Memory>
class Staging {
 public:
  struct Buffer {
    void* host = nullptr;
    void* device = nullptr;
    size_t size = 0;
  };

  explicit Staging(const std::vector<size_t>& sizes) {
    buffers_.reserve(sizes.size());
    try {
      for (size_t size : sizes) {
        buffers_.push_back(Buffer());
        Buffer& buffer = buffers_.back();
        buffer.size = size;
        buffer.host = Memory::host(size);
        buffer.device = Memory::device(size);
      }
    } catch (...) {
      release();
      throw;
    }
  }

  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { release(); }

  const Buffer& operator[](size_t place) const { return buffers_.at(place); }
  size_t count() const { return buffers_.size(); }

 private:
  std::vector<Buffer> buffers_;

  void release() {
    for (const Buffer& buffer : buffers_) {
      if (buffer.device != nullptr) Memory::free_device(buffer.device);
      if (buffer.host != nullptr) Memory::free_host(buffer.host);
    }
    buffers_.clear();
  }
};

}  // namespace tensorrt
}  // namespace edgekit
