#include "requests.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace edgekit {
namespace {

constexpr size_t kBlock = 1 << 16;
constexpr size_t kMostKept = 1 << 20;
constexpr long kMostWords = 4096;

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
  if (start_ == buffer_.size() && !Fill()) return {};
  const std::string number = Line();
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
  buffer_.append(block, static_cast<size_t>(count));
  return true;
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
