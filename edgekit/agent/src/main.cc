// edgekit-agent: edgekit's program on a Linux board. It runs a model once, measures it, and serves
// TVM's RPC protocol, with libtvm_runtime and libtvm_ffi from the same folder.
#include <tvm/ffi/error.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "json.h"

namespace edgekit {

std::string Arguments::Text(const std::string& name, const std::string& otherwise) {
  for (size_t i = 0; i + 1 < left_.size(); ++i) {
    if (left_[i] != name) continue;
    std::string value = left_[i + 1];
    left_.erase(left_.begin() + static_cast<long>(i), left_.begin() + static_cast<long>(i) + 2);
    return value;
  }
  return otherwise;
}

double Arguments::Number(const std::string& name, double otherwise) {
  std::string text = Text(name, "");
  if (text.empty()) return otherwise;
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(value >= 0 && value <= 1e12)) {
    throw std::invalid_argument(name + " takes a number, not " + text);
  }
  return value;
}

bool Arguments::Flag(const std::string& name) {
  for (size_t i = 0; i < left_.size(); ++i) {
    if (left_[i] != name) continue;
    left_.erase(left_.begin() + static_cast<long>(i));
    return true;
  }
  return false;
}

std::vector<std::string> Arguments::Rest(size_t at_least, const char* usage) {
  bool unknown = false;
  for (const std::string& word : left_) unknown = unknown || word.rfind("--", 0) == 0;
  if (unknown || left_.size() < at_least) {
    throw std::invalid_argument(std::string("usage: edgekit-agent ") + usage);
  }
  return left_;
}

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Libraries that a model offloads to use OpenMP, whose idle threads spin 300,000 times before they
// sleep. On a board that runs anything else, this makes a call many times slower. OpenMP reads
// these variables when the model's library is loaded.
void LetIdleThreadsSleep() {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", "1000", 1);
}

int Fail(const std::string& kind, const std::string& message, int code) {
  Say(Object().Text("error", message).Text("kind", kind));
  std::fprintf(stderr, "edgekit-agent: %s\n", message.c_str());
  return code;
}

}  // namespace

int RunCommand(std::vector<std::string> words) {
  const std::string command = words.empty() ? "" : words[0];
  if (!words.empty()) words.erase(words.begin());
  Arguments arguments(std::move(words));
  try {
    if (command == "attend") return Attend(arguments);
    if (command == "info") return Info(arguments);
    if (command == "run") return Run(arguments);
    if (command == "bench") return Bench(arguments);
    if (command == "serve") return Serve(arguments);
    if (command == "watch") return Watch(arguments);
    if (command == "--version") {
      std::puts(EDGEKIT_AGENT_VERSION);
      return 0;
    }
    throw std::invalid_argument("usage: edgekit-agent attend|info|run|bench|serve|watch|--version ...");
  } catch (const std::invalid_argument& error) {
    return Fail("usage", error.what(), kUsage);
  } catch (const tvm::ffi::Error& error) {
    return Fail(error.kind(), error.message(), kFailed);
  } catch (const std::exception& error) {
    return Fail("error", error.what(), kFailed);
  }
}

}  // namespace edgekit

int main(int argc, char** argv) {
  edgekit::LetIdleThreadsSleep();
  return edgekit::RunCommand({argv + 1, argv + argc});
}
