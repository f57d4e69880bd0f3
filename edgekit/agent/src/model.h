// A compiled model that is loaded into this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "tensor.h"

namespace edgekit {

// An error of a model or of what runs it, with its kind for the host.
class ModelError : public std::runtime_error {
 public:
  ModelError(std::string kind, const std::string& message)
      : std::runtime_error(message), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

struct Profiled {
  std::string kernels;   // a list in JSON
  std::string timeline;  // a list in JSON
};

// The calls of one run, as the host reads them.
class Timeline {
 public:
  void Call(size_t kernel, int64_t start, int64_t nanoseconds);
  std::string Json(int64_t nanoseconds) const;

 private:
  std::string kernels_, starts_, durations_;
};

class Model {
 public:
  virtual ~Model() = default;

  // `threads` 0 takes one for each core.
  static std::unique_ptr<Model> Load(const std::string& library, int threads);

  // Prepares the inputs for all runs that follow.
  virtual void Take(const Tensors& inputs) = 0;

  // Compiled code may throw ModelError or end the process.
  virtual void Run() = 0;

  // The outputs of the last run.
  virtual Tensors Outputs() = 0;

  // The times of kernels or steps, and a timeline of the first `traced` runs; `done` hears the
  // number of finished runs.
  virtual Profiled Profile(size_t runs, size_t traced,
                           const std::function<void(size_t)>& done) = 0;

  int threads() const { return threads_; }
  int64_t load_nanoseconds() const { return load_nanoseconds_; }

 protected:
  int threads_ = 0;
  int64_t load_nanoseconds_ = 0;
};

int64_t Now();  // nanoseconds, monotonic
int64_t Median(std::vector<int64_t> values);

// dlopen searches the system's folders for a name without a slash, so one is added.
std::string AsPath(const std::string& library);

}  // namespace edgekit
