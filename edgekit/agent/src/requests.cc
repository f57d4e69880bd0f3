#include "requests.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "model.h"

namespace edgekit {
namespace {

constexpr size_t kBlock = 1 << 16;
constexpr size_t kMostKept = 1 << 20;
constexpr long kMostWords = 4096;
constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr int kLooksInThatTime = 20;

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

std::vector<std::string> Requests::Next() {
  std::string number;
  while (number.empty()) {
    if (start_ == buffer_.size() && !Fill()) return {};
    number = Line();
  }
  const long count = std::strtol(number.c_str(), nullptr, 10);
  if (count < 1 || count > kMostWords) throw std::runtime_error("no request: " + number);
  std::vector<std::string> words;
  while (words.size() < static_cast<size_t>(count)) words.push_back(Line());
  return words;
}

std::string Requests::Store(uint64_t bytes, const std::string& path) {
  std::string reason;
  const auto failed = [&] {
    if (reason.empty()) reason = "cannot write " + path + ": " + std::strerror(errno);
  };
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) failed();
  while (bytes > 0) {
    if (start_ == buffer_.size() && !Fill()) throw std::runtime_error("an input is cut off");
    const auto now = static_cast<size_t>(std::min<uint64_t>(bytes, buffer_.size() - start_));
    if (reason.empty() && !WriteAll(fd, buffer_.data() + start_, now)) failed();
    start_ += now;
    bytes -= now;
  }
  if (fd >= 0 && close(fd) != 0) failed();
  return reason;
}

bool Requests::Ended(int other, int milliseconds) {
  pollfd watched[] = {{ended_ || buffer_.size() > kMostKept ? -1 : STDIN_FILENO, POLLIN, 0},
                      {other, POLLIN, 0}};
  if (poll(watched, 2, milliseconds) > 0 && watched[0].revents != 0) Fill();
  return ended_;
}

bool Requests::Fill() {
  if (start_ > 0) buffer_.erase(0, start_);
  start_ = 0;
  if (ended_) return false;
  char block[kBlock];
  ssize_t count = -1;
  do {
    count = read(STDIN_FILENO, block, sizeof block);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  heard_->last = Now();
  buffer_.append(block, static_cast<size_t>(count));
  return true;
}

void Requests::EndInSilence(int seconds, std::function<void()> clean) {
  heard_->last = Now();
  const auto watch = [heard = heard_, seconds, clean = std::move(clean)] {
    int before = 0;
    while (Now() - heard->last < seconds * kNanoseconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(seconds * 1000 / kLooksInThatTime));
      int waiting = 0;  // bytes that came while the process was too busy to read them
      if (ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > before) heard->last = Now();
      before = waiting;
    }
    heard->silent = true;
    clean();
    const std::string why =
        "edgekit-agent: nothing was heard of the host for " + std::to_string(seconds) + " s\n";
    pollfd errors = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&errors, 1, 0) > 0) WriteAll(STDERR_FILENO, why.data(), why.size());
    _exit(1);
  };
  std::thread(watch).detach();
}

void Requests::StopIfSilent() const {
  while (heard_->silent) pause();
}

std::string Requests::Line() {
  size_t end;
  while ((end = buffer_.find('\n', start_)) == std::string::npos) {
    if (buffer_.size() - start_ > kMostKept || !Fill()) {
      throw std::runtime_error("a request is cut off");
    }
  }
  std::string line = buffer_.substr(start_, end - start_);
  start_ = end + 1;
  return line;
}

}  // namespace edgekit
