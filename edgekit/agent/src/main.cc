// edgekit-agent: edgekit's program on a Linux board. It runs a model once, measures it, and keeps
// versions. edgekit-agent-tvm is the same with libtvm_runtime and libtvm_ffi from the same folder: for
// models that need TVM's virtual machine, and for TVM's RPC protocol. `--runtime FOLDER COMMAND ...`
// runs a command by the second one.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "json.h"
#include "model.h"

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

namespace {

constexpr char kWithRuntime[] = "edgekit-agent-tvm";

// Becomes the program with TVM's runtime in `folder`; returns only if that fails.
void BecomeTheOther(const std::string& folder, const std::vector<std::string>& words) {
  const std::string path = folder + "/" + kWithRuntime;
  std::vector<char*> given{const_cast<char*>(path.c_str())};
  for (const std::string& word : words) given.push_back(const_cast<char*>(word.c_str()));
  given.push_back(nullptr);
  execv(path.c_str(), given.data());
  throw std::runtime_error("cannot start " + path + ": " + std::strerror(errno));
}

}  // namespace

int RunCommand(std::vector<std::string> words) {
  const std::string name = words.empty() ? "" : words[0];
  try {
    if (name == "--runtime" && words.size() > 2) {
      BecomeTheOther(words[1], {words.begin() + 2, words.end()});
    }
    if (name == "--version") {
      std::puts(EDGEKIT_AGENT_VERSION);
      return 0;
    }
    std::string names = "--version";
    for (const Command& command : kCommands) {
      if (name == command.name) return command.run(Arguments({words.begin() + 1, words.end()}));
      names = std::string(command.name) + "|" + names;
    }
    throw std::invalid_argument("usage: edgekit-agent " + names + " ...");
  } catch (const std::invalid_argument& error) {
    return Fail("usage", error.what(), kUsage);
  } catch (const ModelError& error) {
    return Fail(error.kind(), error.what(), kFailed);
  } catch (const std::exception& error) {
    return Fail("error", error.what(), kFailed);
  }
}

}  // namespace edgekit

int main(int argc, char** argv) {
  edgekit::LetIdleThreadsSleep();
  return edgekit::RunCommand({argv + 1, argv + argc});
}
