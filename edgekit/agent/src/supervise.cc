#include "supervise.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "commands.h"
#include "parent.h"

namespace edgekit {
namespace {

constexpr size_t kMostKept = 16 << 10;
constexpr int kBetweenLooks = 200;  // milliseconds
constexpr int kBetweenLooksAtTheEnd = 10;

std::atomic<pid_t> g_running{0};

[[noreturn]] void BeCommand(const std::vector<std::string>& words, const std::string& folder,
                            int errors, pid_t parent) {
  EndWithParent(parent, SIGKILL);
  setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(errors, STDERR_FILENO);
  int code = 1;
  if (chdir(folder.c_str()) == 0) code = RunCommand(words);
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

// Returns false at the end.
bool KeepMore(int fd, std::string* kept) {
  char block[4096];
  const ssize_t count = read(fd, block, sizeof block);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  kept->append(block, static_cast<size_t>(count));
  if (kept->size() > 2 * kMostKept) kept->erase(0, kept->size() - kMostKept);
  return count > 0;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Ended Supervise(const std::vector<std::string>& words, const std::string& folder,
                Requests& requests) {
  int errors[2];
  if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) BeCommand(words, folder, errors[1], parent);
  close(errors[1]);
  if (child < 0) {
    close(errors[0]);
    throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
  }
  setpgid(child, child);
  g_running = child;
  std::string kept;
  bool open = true;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const int wait = open ? kBetweenLooks : kBetweenLooksAtTheEnd;
    if (requests.Ended(open ? errors[0] : -1, wait)) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    if (open) open = KeepMore(errors[0], &kept);
  }
  requests.StopIfSilent();
  g_running = 0;
  kill(-child, SIGKILL);  // all processes that it started
  while (open) {
    const size_t before = kept.size();
    open = KeepMore(errors[0], &kept) && kept.size() != before;
  }
  close(errors[0]);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), Lines(kept)};
}

void EndRunning() {
  const pid_t child = g_running;
  if (child <= 0) return;
  kill(-child, SIGKILL);
  kill(child, SIGKILL);  // it may have no group of its own yet
  waitpid(child, nullptr, 0);
}

}  // namespace edgekit
