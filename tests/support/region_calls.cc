// A region in one or several loaded model libraries, called by many threads at once.
//   region_calls SYMBOL THREADS LIMIT_MIB INPUT OUTPUT 1,3,9,9 1,10 LIB...
// INPUT holds the region's only input, OUTPUT gets its only output. The i-th thread multiplies the
// input by i+1 and calls the i-th library, in turns; the very first calls of all are made at the
// same time. Afterwards each call is made again by one thread, and has to give the same bytes.
// What goes wrong is a line on stderr. A limit of 0 is none.
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <sys/resource.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

namespace {

using Shape = std::vector<int64_t>;
using Floats = std::vector<float>;
using Call = int (*)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

constexpr int kRounds = 3;

Shape shape_of(const char* text) {
  Shape shape;
  std::istringstream words(text);
  for (std::string one; std::getline(words, one, ',');) shape.push_back(std::stoll(one));
  return shape;
}

size_t count_of(const Shape& shape) {
  size_t count = 1;
  for (int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

// As TVM has its tensors: at multiples of 64 bytes.
struct Held {
  Shape shape;
  float* values;
  DLTensor tensor{};

  Held(const Shape& extents, float fill) : shape(extents) {
    const size_t size = (count_of(shape) * sizeof(float) + 63) / 64 * 64;
    values = static_cast<float*>(std::aligned_alloc(64, size));
    if (values == nullptr) throw std::bad_alloc();
    for (size_t i = 0; i < count_of(shape); ++i) values[i] = fill;
    tensor.data = values;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
  }
  Held(const Held&) = delete;
  ~Held() { std::free(values); }
};

std::string raised() {
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  if (error == nullptr) return "it says nothing";
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  return {cell->message.data, cell->message.size};
}

Floats called(Call call, const Floats& given, const Shape& in, const Shape& out) {
  Held input(in, 0), output(out, 7e33f);
  std::memcpy(input.values, given.data(), given.size() * sizeof(float));
  TVMFFIAny arguments[2] = {}, result = {};
  for (int i = 0; i < 2; ++i) {
    arguments[i].type_index = kTVMFFIDLTensorPtr;
    arguments[i].v_ptr = i == 0 ? &input.tensor : &output.tensor;
  }
  if (call(nullptr, arguments, 2, &result) != 0) throw std::runtime_error(raised());
  return {output.values, output.values + count_of(out)};
}

Floats times(const Floats& values, float factor) {
  Floats made = values;
  for (float& value : made) value *= factor;
  return made;
}

Call found(const char* library, const std::string& symbol) {
  void* loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw std::runtime_error(dlerror());
  void* function = dlsym(loaded, ("__tvm_ffi_" + symbol).c_str());
  if (function == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Call>(function);
}

void limit_memory(long mebibytes) {
  if (mebibytes == 0) return;
  long pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) throw std::runtime_error("statm");
  std::fclose(file);
  const rlim_t most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (mebibytes << 20));
  const rlimit limit{most, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
}

void call_all(int argc, char** argv) {
  if (argc < 9) throw std::invalid_argument("too few arguments");
  const std::string symbol = argv[1];
  const int threads = std::atoi(argv[2]);
  const Shape in = shape_of(argv[6]), out = shape_of(argv[7]);
  std::vector<Call> calls;
  for (int i = 8; i < argc; ++i) calls.push_back(found(argv[i], symbol));
  if (std::set<Call>(calls.begin(), calls.end()).size() != calls.size())
    throw std::runtime_error("two libraries share one region");
  Floats given(count_of(in));
  FILE* file = std::fopen(argv[4], "rb");
  if (file == nullptr || std::fread(given.data(), sizeof(float), given.size(), file) != given.size())
    throw std::runtime_error("the input is cut off");
  std::fclose(file);
  limit_memory(std::atol(argv[3]));

  const size_t libraries = calls.size();
  std::vector<std::vector<Floats>> made(static_cast<size_t>(threads));
  std::vector<std::string> problems(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, static_cast<unsigned>(threads));
  for (size_t i = 0; i < made.size(); ++i)
    workers.emplace_back([&, i] {
      const Floats own = times(given, static_cast<float>(i + 1));
      pthread_barrier_wait(&together);
      try {
        for (int round = 0; round < kRounds; ++round)
          made[i].push_back(called(calls[i % libraries], own, in, out));
      } catch (const std::exception& error) {
        problems[i] = error.what();
      }
    });
  for (std::thread& worker : workers) worker.join();
  for (const std::string& problem : problems)
    if (!problem.empty()) throw std::runtime_error(problem);
  for (size_t i = 0; i < made.size(); ++i) {
    const Floats alone =
        called(calls[(i + 1) % libraries], times(given, static_cast<float>(i + 1)), in, out);
    for (const Floats& one : made[i])
      if (std::memcmp(one.data(), alone.data(), alone.size() * sizeof(float)) != 0)
        throw std::runtime_error("thread " + std::to_string(i) + " got other numbers");
  }
  FILE* result = std::fopen(argv[5], "wb");
  if (result == nullptr) throw std::runtime_error("no file for the output");
  std::fwrite(made[0][0].data(), sizeof(float), made[0][0].size(), result);
  std::fclose(result);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    call_all(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
