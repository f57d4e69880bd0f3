// What the host asks for on our input: words, a line each, after a line with their number; bytes
// that belong to a request come right after it. Empty lines between requests are signs of life.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace edgekit {

class Requests {
 public:
  ~Requests() { heard_->last = std::numeric_limits<int64_t>::max() / 2; }  // the end is no silence

  // The next request; empty at the end of the input. Throws std::runtime_error where it is none.
  std::vector<std::string> Next();

  // Stores the next bytes of the input in a file. Says why where that fails; the bytes are gone then
  // too, and the next request can be read.
  std::string Store(uint64_t bytes, const std::string& path);

  // Whether the input has ended, having waited for up to so long or for `other` to be readable.
  // What comes meanwhile is kept for later.
  bool Ended(int other, int milliseconds);

  // From now on, runs `clean` and ends the process once nothing has come for so many seconds,
  // whatever the process is doing then.
  void EndInSilence(int seconds, std::function<void()> clean);

  // Never returns once that has begun: what its cleaning ended is no answer.
  void StopIfSilent() const;

 private:
  struct Heard {
    std::atomic<int64_t> last{0};  // when something was read
    std::atomic<bool> silent{false};
  };

  bool Fill();
  std::string Line();

  std::string buffer_;
  size_t start_ = 0;
  bool ended_ = false;
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();  // a thread that reads it lives longer
};

}  // namespace edgekit
