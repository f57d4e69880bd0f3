// A region in one or several loaded model libraries, called by many threads at once.
//   region_calls THREADS LIMIT_MIB INPUT OUTPUT 1,3,9,9 1,10 LIB...
// INPUT holds the model's only input, OUTPUT gets its only output. The i-th thread multiplies the
// input by i+1 and calls the i-th library, in turns, each time with a program of its own; the very
// first calls of all are made at the same time. Afterwards each call is made again by one thread, and has to give the same bytes.
// What goes wrong is a line on stderr. A limit of 0 is none.
#include <dlfcn.h>
#include <sys/resource.h>
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

#include "edgekit.h"

namespace {

using Shape = std::vector<int64_t>;
using Floats = std::vector<float>;

struct Library {
  decltype(edgekit_create)* create;
  decltype(edgekit_run)* run;
  decltype(edgekit_error)* error;
  decltype(edgekit_destroy)* destroy;
};

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

// Memory at a multiple of 64 bytes, as kernels and libraries like it.
struct Held {
  float* values;

  explicit Held(size_t count)
      : values(static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64))) {
    if (values == nullptr) throw std::bad_alloc();
  }
  Held(const Held&) = delete;
  ~Held() { std::free(values); }
};

Floats called(const Library& library, const Floats& given, size_t count) {
  Held input(given.size()), output(count);
  std::memcpy(input.values, given.data(), given.size() * sizeof(float));
  edgekit_program* program = library.create(nullptr, 1);
  if (program == nullptr) throw std::runtime_error("no memory for a program");
  const void* in[] = {input.values};
  void* out[] = {output.values};
  const int failed = library.run(program, in, out);
  const std::string why = failed ? library.error(program) : "";
  library.destroy(program);
  if (failed) throw std::runtime_error(why);
  return {output.values, output.values + count};
}

Floats times(const Floats& values, float factor) {
  Floats made = values;
  for (float& value : made) value *= factor;
  return made;
}

template <typename Function>
void find(void* loaded, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(dlsym(loaded, name));
  if (found == nullptr) throw std::runtime_error(dlerror());
}

Library opened(const char* path) {
  void* loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw std::runtime_error(dlerror());
  Library library;
  find(loaded, "edgekit_create", library.create);
  find(loaded, "edgekit_run", library.run);
  find(loaded, "edgekit_error", library.error);
  find(loaded, "edgekit_destroy", library.destroy);
  return library;
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
  if (argc < 8) throw std::invalid_argument("too few arguments");
  const int threads = std::atoi(argv[1]);
  const size_t out = count_of(shape_of(argv[6]));
  std::vector<Library> calls;
  std::set<void*> apart;
  for (int i = 7; i < argc; ++i) {
    calls.push_back(opened(argv[i]));
    apart.insert(reinterpret_cast<void*>(calls.back().run));
  }
  if (apart.size() != calls.size()) throw std::runtime_error("two libraries are one");
  Floats given(count_of(shape_of(argv[5])));
  FILE* file = std::fopen(argv[3], "rb");
  if (file == nullptr || std::fread(given.data(), sizeof(float), given.size(), file) != given.size())
    throw std::runtime_error("the input is cut off");
  std::fclose(file);
  limit_memory(std::atol(argv[2]));

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
          made[i].push_back(called(calls[i % libraries], own, out));
      } catch (const std::exception& error) {
        problems[i] = error.what();
      }
    });
  for (std::thread& worker : workers) worker.join();
  for (const std::string& problem : problems)
    if (!problem.empty()) throw std::runtime_error(problem);
  for (size_t i = 0; i < made.size(); ++i) {
    const Floats alone =
        called(calls[(i + 1) % libraries], times(given, static_cast<float>(i + 1)), out);
    for (const Floats& one : made[i])
      if (std::memcmp(one.data(), alone.data(), alone.size() * sizeof(float)) != 0)
        throw std::runtime_error("thread " + std::to_string(i) + " got other numbers");
  }
  FILE* result = std::fopen(argv[4], "wb");
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
