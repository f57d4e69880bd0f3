#include "session.h"

#include <signal.h>
#include <sys/wait.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "calls.h"
#include "folders.h"
#include "model.h"
#include "parent.h"

namespace edgekit {
namespace {

using tvm::ffi::Function;

// tvm/rpc/base.py
constexpr int32_t kMagic = 0xff271;
constexpr int32_t kKeyMismatch = kMagic + 2;

constexpr int kSecondsToGreet = 5;
constexpr int32_t kLongestKey = 4096;
constexpr useconds_t kBetweenChecks = 20'000;
constexpr int64_t kToEndByItself = 2'000'000'000;  // nanoseconds

// Reduces a client's name to a file inside the session's folder.
std::string InFolder(const std::string& folder, const std::string& name) {
  size_t slash = name.rfind('/');
  std::string base = slash == std::string::npos ? name : name.substr(slash + 1);
  if (base.empty() || base == "." || base == "..") base = "unnamed";
  return folder + "/" + base;
}

template <typename Callable>
void Offer(const char* name, Callable callable) {
  Function::SetGlobal(name, ForTvm(Function::FromTyped(std::move(callable))), true);
}

[[noreturn]] void ServeInChild(int fd, const std::string& folder, pid_t parent) {
  EndWithParent(parent, SIGKILL);
  setpgid(0, 0);
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  int code = 1;
  try {
    if (chdir(folder.c_str()) != 0) throw std::runtime_error("no session folder");
    Offer("tvm.rpc.server.workpath", [folder](std::string name) { return InFolder(folder, name); });
    Offer("tvm.rpc.server.load_module",
          [folder](std::string name) { return LoadModule(InFolder(folder, name)); });
    // The protocol has no version, so our clients ask for TVM's first.
    Offer("edgekit.tvm_version", [] { return std::string(EDGEKIT_TVM_VERSION); });
    Offer("edgekit.tvm_ffi_version", [] { return std::string(EDGEKIT_TVM_FFI_VERSION); });
    CallGlobal("rpc.ServerLoop", fd);
    code = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "edgekit-agent: session: %s\n", error.what());
  }
  std::fflush(stderr);
  _exit(code);
}

void TellTimeout(int fd, double seconds) {
  char text[160];
  std::snprintf(text, sizeof text,
                "RPCSessionTimeoutError: Your %gs session has expired, try to increase the "
                "\"session_timeout\" value.",
                seconds);
  try {
    CallGlobal("rpc.ReturnException", fd, text);
  } catch (const std::exception&) {
    std::fprintf(stderr, "edgekit-agent: the client left before its time-out could be told\n");
  }
}

std::string Ending(int status) {
  if (WIFSIGNALED(status)) return std::string("killed by ") + strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "ended" : "failed";
}

}  // namespace

std::optional<Client> Greet(Socket socket, const std::string& key, const std::string& device_key) {
  socket.SetTimeout(kSecondsToGreet);
  if (socket.ReceiveInt() != kMagic) return std::nullopt;
  int32_t length = socket.ReceiveInt();
  if (length < 0 || length > kLongestKey) return std::nullopt;
  std::string words = socket.ReceiveAll(static_cast<size_t>(length));
  const std::string expected = "client:" + key;
  if (words.rfind(expected, 0) != 0 ||
      (words.size() > expected.size() && words[expected.size()] != ' ')) {
    socket.SendInt(kKeyMismatch);
    return std::nullopt;
  }
  double timeout = 0;
  size_t option = words.find(" -timeout=");
  if (option != std::string::npos) timeout = std::strtod(words.c_str() + option + 10, nullptr);
  const std::string answer = "server:" + device_key;
  socket.SendInt(kMagic);
  socket.SendInt(static_cast<int32_t>(answer.size()));
  socket.SendAll(answer);
  socket.SetTimeout(0);
  socket.WatchPeer();
  return Client{std::move(socket), timeout > 0 ? timeout : 0};
}

std::string ServeSession(const Client& client, const std::string& workspace, Door& door,
                         const volatile sig_atomic_t& stop) {
  std::string folder = workspace + "/session-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    throw std::runtime_error("cannot make a folder in " + workspace + ": " + std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    door.Close();
    ServeInChild(client.socket.fd(), folder, parent);
  }
  if (child < 0) {
    RemoveFolder(folder);
    throw std::runtime_error(std::string("cannot start a session: ") + std::strerror(errno));
  }
  int64_t deadline = Now() + static_cast<int64_t>(client.timeout_seconds * 1e9);
  int64_t left_at = 0;
  std::string ending;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    // A session that computes does not notice that its client is gone, however long it computes.
    if (left_at == 0 && client.socket.PeerLeft()) left_at = Now();
    if (left_at != 0 && Now() - left_at > kToEndByItself) {
      ending = "left by its client";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    if (client.timeout_seconds > 0 && Now() >= deadline) {
      // Stopped first: two processes must not write to the client at once.
      kill(child, SIGSTOP);
      TellTimeout(client.socket.fd(), client.timeout_seconds);
      ending = "out of time";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    if (stop != 0) {
      ending = "stopped";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    door.Wait(0);
    usleep(kBetweenChecks);
  }
  kill(-child, SIGKILL);  // all processes that the session started
  RemoveFolder(folder);
  return ending.empty() ? Ending(status) : ending;
}

}  // namespace edgekit
