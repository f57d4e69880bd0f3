#include "npy.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>

#include <sys/stat.h>

namespace edgekit {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLongestHeader = 1 << 16;

struct NamedType {
  const char* descr;
  const char* dtype;
  int64_t width;
};

// numpy has no bfloat16: edgekit writes it as two opaque bytes.
constexpr NamedType kTypes[] = {
    {"<f4", "float32", 4}, {"<f2", "float16", 2}, {"|V2", "bfloat16", 2}, {"<f8", "float64", 8},
    {"|i1", "int8", 1},    {"<i2", "int16", 2},   {"<i4", "int32", 4},    {"<i8", "int64", 8},
    {"|u1", "uint8", 1},   {"<u2", "uint16", 2},  {"<u4", "uint32", 4},   {"<u8", "uint64", 8},
    {"|b1", "bool", 1},
};

std::string After(const std::string& header, const std::string& key, const std::string& path) {
  size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) throw std::runtime_error(path + " has no " + key + " in its header");
  at = header.find_first_not_of(' ', at + key.size() + 3);
  return at == std::string::npos ? "" : header.substr(at);
}

const NamedType& TypeOf(const std::string& header, const std::string& path) {
  std::string rest = After(header, "descr", path);
  for (const NamedType& named : kTypes) {
    if (rest.rfind("'" + std::string(named.descr) + "'", 0) == 0) return named;
  }
  throw std::runtime_error(path + " holds a type this program does not read: " + rest.substr(0, 12));
}

std::vector<int64_t> ShapeOf(const std::string& header, const std::string& path) {
  std::string rest = After(header, "shape", path);
  std::vector<int64_t> shape;
  size_t end = rest.find(')');
  if (rest.empty() || rest[0] != '(' || end == std::string::npos) {
    throw std::runtime_error(path + " has a damaged shape");
  }
  const char* at = rest.c_str() + 1;
  const char* stop = rest.c_str() + end;
  while (at < stop) {
    char* next = nullptr;
    errno = 0;
    long long extent = std::strtoll(at, &next, 10);
    if (next == at || next > stop || extent < 0 || errno != 0) {
      throw std::runtime_error(path + " has a damaged shape");
    }
    shape.push_back(extent);
    at = next + std::strspn(next, ", ");
  }
  return shape;
}

// Refuses a shape before it asks for memory that the file does not fill. Strides are products of
// extents: they must not overflow either, also where an extent of zero leaves no data.
void CheckSize(const std::vector<int64_t>& shape, int64_t width, uint64_t left,
               const std::string& path) {
  int64_t most = width;
  bool empty = false;
  for (int64_t extent : shape) {
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(most, extent == 0 ? 1 : extent, &most)) {
      throw std::runtime_error(path + " has a damaged shape");
    }
  }
  if ((empty ? 0 : static_cast<uint64_t>(most)) != left) {
    throw std::runtime_error(path + " holds " + std::to_string(left) +
                             " bytes of data where its shape needs another number");
  }
}

}  // namespace

Tensor NewTensor(std::string dtype, std::vector<int64_t> shape, size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment);
  if (data == nullptr) throw std::bad_alloc();
  return {std::move(dtype), std::move(shape), bytes, std::shared_ptr<void>(data, std::free)};
}

Tensor ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + std::strerror(errno));
  unsigned char start[10];
  if (!file.read(reinterpret_cast<char*>(start), 10) || std::memcmp(start, "\x93NUMPY", 6) != 0) {
    throw std::runtime_error(path + " is not a .npy file");
  }
  size_t length = start[8] | start[9] << 8;
  if (start[6] == 2) {
    unsigned char more[2];
    if (!file.read(reinterpret_cast<char*>(more), 2)) throw std::runtime_error(path + " is cut off");
    length |= static_cast<size_t>(more[0]) << 16 | static_cast<size_t>(more[1]) << 24;
  } else if (start[6] != 1) {
    throw std::runtime_error(path + " is of a .npy version this program does not read");
  }
  if (length > kLongestHeader) throw std::runtime_error(path + " has a damaged header");
  std::string header(length, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(length))) {
    throw std::runtime_error(path + " is cut off");
  }
  if (After(header, "fortran_order", path).rfind("False", 0) != 0) {
    throw std::runtime_error(path + " is in Fortran order");
  }
  const NamedType& type = TypeOf(header, path);
  std::vector<int64_t> shape = ShapeOf(header, path);
  std::streampos data = file.tellg();
  file.seekg(0, std::ios::end);
  uint64_t left = static_cast<uint64_t>(file.tellg() - data);
  CheckSize(shape, type.width, left, path);
  file.seekg(data);
  Tensor tensor = NewTensor(type.dtype, std::move(shape), left);
  if (!file.read(static_cast<char*>(tensor.data.get()), static_cast<std::streamsize>(left))) {
    throw std::runtime_error(path + " is cut off");
  }
  return tensor;
}

void WriteNpy(const std::string& path, const Tensor& tensor) {
  const char* descr = nullptr;
  for (const NamedType& named : kTypes) {
    if (tensor.dtype == named.dtype) descr = named.descr;
  }
  if (descr == nullptr) throw std::runtime_error("an output has a type that .npy can't hold");
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (int64_t extent : tensor.shape) header += std::to_string(extent) + ", ";
  if (tensor.shape.size() > 1) header.resize(header.size() - 2);
  header += "), }";
  header.append((kAlignment - (10 + header.size() + 1) % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string start = "\x93NUMPY";
  start += '\x01';
  start += '\0';
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);

  std::string temporary = path + ".part";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << start << header;
  file.write(static_cast<const char*>(tensor.data.get()),
             static_cast<std::streamsize>(tensor.bytes));
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    throw std::runtime_error("cannot write " + path + ": " + reason);
  }
}

Tensors ReadSample(const std::string& folder) {
  Tensors inputs;
  for (;;) {
    std::string path = folder + "/input-" + std::to_string(inputs.size()) + ".npy";
    struct stat status;
    if (stat(path.c_str(), &status) != 0) break;
    inputs.push_back(ReadNpy(path));
  }
  return inputs;
}

}  // namespace edgekit
