// The runner's way from ONNX to an engine in the cache, without a region and without a GPU:
// FILE.onnx PRECISION. The engine's bytes, how often it was built, or what the runner says.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "edgekit_tensorrt_build.h"

using namespace edgekit::tensorrt;

namespace {

struct Plan {
  std::string bytes;
  explicit operator bool() const { return !bytes.empty(); }
};

// To load an engine takes a GPU.
struct Builds {
  Maker& maker;
  int built = 0;
  std::string build() {
    ++built;
    return maker.build();
  }
  Plan load(const std::string& bytes) { return {bytes}; }
  [[noreturn]] void fail(const std::string& doing) { maker.fail(doing); }
  void note(const std::string& text) { maker.note(text); }
};

}  // namespace

int main(int, char** words) {
  std::ifstream file(words[1], std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  try {
    const int version = Nvidia::here().version();
    const EngineKey key{"region", hash_of(model.data(), model.size()), version, "none", 8, 6,
                        words[2], 256 << 20, -1, 3};
    const auto tell = [](const std::string& text, bool) {
      std::fprintf(stderr, "%s\n", text.c_str());
    };
    Maker maker(key, cache_folder(), model.data(), model.size(), tell);
    Builds builds{maker};
    const Plan plan = cached_engine<Plan>(key, cache_folder(), builds);
    std::printf("%zu %d\n", plan.bytes.size(), builds.built);
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
