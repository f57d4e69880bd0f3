// The host's requests on our input: a line with the number of words, then each word on a line, then
// the request's bytes, if any. Empty lines between requests are signs of life.
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

  // The next request; empty at the end of the input. Throws std::runtime_error if it is invalid.
  std::vector<std::string> Next();

  // Stores the next bytes of the input in a file and returns the reason of a failure. The bytes are
  // consumed in any case, so that the next request can be read.
  std::string Store(uint64_t bytes, const std::string& path);

  // Waits up to so long, or until `other` is readable, and tells whether the input has ended. Input
  // that arrives meanwhile is kept.
  bool Ended(int other, int milliseconds);

  // From now on, runs `clean` and ends the process once no input has come for so many seconds.
  void EndInSilence(int seconds, std::function<void()> clean);

  // Never returns once that has begun: a command that `clean` ended has no answer.
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
