// The progress of building an engine, in words, no more often than a person can read. This file
// needs no header of NVIDIA's.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace edgekit {
namespace tensorrt {

// TensorRT 10 and newer tell phases with steps, one within the other and from several threads;
// older ones write lines to their log and nothing else.
class Progress {
 public:
  // `seconds` is a clock.
  Progress(std::string title, std::function<void(const std::string&)> tell,
           std::function<double()> seconds)
      : title_(std::move(title)), tell_(std::move(tell)), seconds_(std::move(seconds)) {}

  void start(const std::string& phase, const std::string& parent, int steps) {
    std::lock_guard<std::mutex> lock(access_);
    phases_.push_back({phase, parent, std::max(steps, 1), 0});
    report();
  }

  // Steps are counted from 0, and may be told in any order.
  void step(const std::string& phase, int step) {
    std::lock_guard<std::mutex> lock(access_);
    if (Phase* found = named(phase)) {
      found->done = std::min(std::max(found->done, step + 1), found->steps);
      report();
    }
  }

  void finish(const std::string& phase) {
    std::lock_guard<std::mutex> lock(access_);
    for (size_t i = phases_.size(); i-- > 0;) {
      if (phases_[i].name != phase) continue;
      phases_.erase(phases_.begin() + static_cast<long>(i));
      break;
    }
  }

  // Something is going on: of its log.
  void line(const std::string& text) {
    std::lock_guard<std::mutex> lock(access_);
    if (phases_.empty()) last_line_ = text.substr(0, kLongestLine);
    report();
  }

 private:
  struct Phase {
    std::string name, parent;
    int steps, done;
  };

  static constexpr double kSecondsBetween = 1.0;
  static constexpr size_t kLongestLine = 100;
  static constexpr int kDeepest = 8;
  const std::string title_;
  const std::function<void(const std::string&)> tell_;
  const std::function<double()> seconds_;
  std::mutex access_;
  std::vector<Phase> phases_;
  std::string last_line_;
  double told_ = 0;
  bool was_told_ = false;
  int percent_ = 0;

  Phase* named(const std::string& name) {
    for (size_t i = phases_.size(); i-- > 0;)
      if (phases_[i].name == name) return &phases_[i];
    return nullptr;
  }

  // Of a phase, with what is done of the one inside it.
  double share(const Phase& phase, int depth = 0) const {
    double inside = 0;
    for (const Phase& other : phases_)
      if (depth < kDeepest && &other != &phase && other.parent == phase.name)
        inside = std::max(inside, share(other, depth + 1));
    return std::min((phase.done + inside) / phase.steps, 1.0);
  }

  void report() {
    const double now = seconds_();
    if (was_told_ && now - told_ < kSecondsBetween) return;
    was_told_ = true;
    told_ = now;
    if (phases_.empty()) {
      tell_(title_ + (last_line_.empty() ? "" : ": " + last_line_));
      return;
    }
    // What is done stays done, though a later phase may start another count.
    percent_ = std::max(percent_, static_cast<int>(100 * share(phases_.front())));
    tell_(title_ + ": " + std::to_string(percent_) + " %, " + phases_.back().name);
  }
};

}  // namespace tensorrt
}  // namespace edgekit
