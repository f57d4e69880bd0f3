// Runs a model with onnxruntime on a board, and says how long each inference took.
//
//   run LIBRARY MODEL RUNS OUTPUTS NAME... (NAME TYPE FILE RANK EXTENT...)...
//
// Of onnxruntime there is its library alone: a table of functions that only ever grows at its end.

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

enum Place {
  kErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpThreads = 24,
  kCreateTensor = 48,
  kTensorData = 51,
  kDefaultAllocator = 78,
  kReleaseValue = 96,
};

struct Base {
  void* const* (*table)(std::uint32_t version);
  const char* (*version)();
};

constexpr std::uint32_t kVersion = 11;
constexpr int kWarnings = 2;

void* const* table;

using Status = void*;

template <typename... Arguments>
void Call(Place place, Arguments... arguments) {
  auto* function = reinterpret_cast<Status (*)(Arguments...)>(table[place]);
  if (Status status = function(arguments...)) {
    auto* message = reinterpret_cast<const char* (*)(Status)>(table[kErrorMessage]);
    std::fprintf(stderr, "%s\n", message(status));
    std::exit(1);
  }
}

void* Input(void* allocator, int type, const char* file, const std::vector<std::int64_t>& shape) {
  void* value = nullptr;
  Call(kCreateTensor, allocator, shape.data(), shape.size(), type, &value);
  void* data = nullptr;
  Call(kTensorData, value, &data);
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const auto size = stream.tellg();
  stream.seekg(0);
  stream.read(static_cast<char*>(data), size);
  if (!stream) {
    std::fprintf(stderr, "%s can't be read\n", file);
    std::exit(1);
  }
  return value;
}

}  // namespace

int main(int, char** words) {
  char** word = words + 1;
  void* library = dlopen(*word++, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  auto* base = reinterpret_cast<const Base* (*)()>(dlsym(library, "OrtGetApiBase"))();
  table = base->table(kVersion);

  const char* model = *word++;
  const int runs = std::atoi(*word++);
  std::vector<const char*> outputs(std::atoi(*word++));
  for (const char*& name : outputs) name = *word++;

  void *environment = nullptr, *options = nullptr, *session = nullptr, *allocator = nullptr;
  Call(kCreateEnv, kWarnings, "benchmark", &environment);
  Call(kCreateSessionOptions, &options);
  Call(kSetIntraOpThreads, options, 1);
  Call(kCreateSession, environment, model, options, &session);
  Call(kDefaultAllocator, &allocator);

  std::vector<const char*> names;
  std::vector<void*> inputs;
  while (*word != nullptr) {
    names.push_back(*word++);
    const int type = std::atoi(*word++);
    const char* file = *word++;
    std::vector<std::int64_t> shape(std::atoi(*word++));
    for (std::int64_t& extent : shape) extent = std::atoll(*word++);
    inputs.push_back(Input(allocator, type, file, shape));
  }

  auto* release = reinterpret_cast<void (*)(void*)>(table[kReleaseValue]);
  for (int run = 0; run < runs; ++run) {
    std::vector<void*> results(outputs.size(), nullptr);
    const auto start = std::chrono::steady_clock::now();
    Call(kRun, session, nullptr, names.data(), inputs.data(), inputs.size(), outputs.data(),
         outputs.size(), results.data());
    const auto end = std::chrono::steady_clock::now();
    std::printf("%lld\n",
                static_cast<long long>(std::chrono::nanoseconds(end - start).count()));
    for (void* result : results) release(result);
  }
}
