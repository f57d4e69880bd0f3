// The C++ that every oneDNN region shares: its primitives, made once, and memory for any number of
// concurrent calls. Several threads may execute a primitive, but the memory between layers is not
// shared, so each call takes a context of that memory and returns it.
#pragma once

#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "edgekit_onednn_plan.h"

// GNU's OpenMP, which oneDNN runs its threads by.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace edgekit {
namespace onednn {

// Primitives are made for a number of threads, and have to be executed with no other.
class ThreadsNow {
 public:
  explicit ThreadsNow(int wanted) : before_(omp_get_max_threads()) { omp_set_num_threads(wanted); }
  ~ThreadsNow() { omp_set_num_threads(before_); }
  ThreadsNow(const ThreadsNow&) = delete;
  ThreadsNow& operator=(const ThreadsNow&) = delete;

 private:
  int before_;
};

class Context {
 public:
  Context(const Plan& plan, const dnnl::engine& engine) : plan_(plan), stream_(engine) {
    const size_t size = plan.own_size + plan.scratch_size;
    own_.reset(static_cast<char*>(size ? std::aligned_alloc(64, size) : nullptr));
    if (size && !own_)
      throw std::runtime_error("there is no memory for the " + std::to_string(size) +
                               " bytes between its layers, " + plan.steps[0].layer + " and on");
    for (const Operand& operand : plan.operands) {
      const Buffer& buffer = plan.buffers[operand.buffer];
      void* data = buffer.kind == Buffer::kConstant ? const_cast<void*>(buffer.data)
                   : buffer.kind == Buffer::kOwn    ? own_.get() + buffer.offset
                                                    : nullptr;
      memories_.emplace_back(operand.desc, engine, data);
    }
    for (const Step& step : plan.steps) {
      std::unordered_map<int, dnnl::memory> arguments;
      for (const auto& argument : step.arguments)
        arguments.emplace(argument.first, memories_[argument.second]);
      if (step.primitive)
        arguments.emplace(DNNL_ARG_SCRATCHPAD,
                          dnnl::memory(step.scratch, engine, own_.get() + plan.own_size));
      arguments_.push_back(std::move(arguments));
    }
  }

  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Buffer& buffer = plan_.buffers[plan_.operands[i].buffer];
      if (buffer.kind == Buffer::kInput) memories_[i].set_data_handle(data_of(inputs[buffer.index]));
      if (buffer.kind == Buffer::kOutput)
        memories_[i].set_data_handle(data_of(outputs[buffer.index]));
    }
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      for_layer(step.layer, [&] {
        if (step.primitive) {
          step.primitive.execute(stream_, arguments_[i]);
        } else {
          const dnnl::memory& whole = memories_[step.arguments[0].second];
          float* first = static_cast<float*>(whole.get_data_handle());
          std::fill(first, first + whole.get_desc().get_size() / sizeof(float), step.filling);
        }
      });
    }
    stream_.wait();
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  const Plan& plan_;
  dnnl::stream stream_;
  std::unique_ptr<char, Free> own_;
  std::vector<dnnl::memory> memories_;
  std::vector<std::unordered_map<int, dnnl::memory>> arguments_;
};

class Runner {
 public:
  Runner(const Program& program, const Settings& settings)
      : program_(program), settings_(settings), threads_(threads_wanted(settings.threads)) {
    const dnnl_version_t* found = dnnl_version();
    if (found->major != DNNL_VERSION_MAJOR || found->minor < DNNL_VERSION_MINOR)
      throw std::runtime_error("oneDNN " + std::to_string(found->major) + "." +
                               std::to_string(found->minor) +
                               " is loaded, and it was built for " +
                               std::to_string(DNNL_VERSION_MAJOR) + "." +
                               std::to_string(DNNL_VERSION_MINOR));
    if (threads_ == 0) threads_ = omp_get_max_threads();
    const ThreadsNow threads(threads_);
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    plan_ = Planner(program_, settings_, engine_).take();
  }

  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    if (settings_.only_finite) check_finite(inputs);
    const ThreadsNow threads(threads_);
    std::unique_ptr<Context> context = take();
    context->run(inputs, outputs);
    std::lock_guard<std::mutex> lock(taking_);
    idle_.push_back(std::move(context));
  }

  // Bytes of inputs and outputs that are brought into another layout.
  uint64_t copied_in_a_call() const { return plan_.copied; }

 private:
  std::unique_ptr<Context> take() {
    {
      std::lock_guard<std::mutex> lock(taking_);
      if (!idle_.empty()) {
        std::unique_ptr<Context> found = std::move(idle_.back());
        idle_.pop_back();
        return found;
      }
    }
    return std::unique_ptr<Context>(new Context(plan_, engine_));
  }

  void check_finite(const DLTensor* const* inputs) const {
    const std::vector<int> numbers = program_.inputs();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Value& value = program_.values[numbers[i]];
      if (!all_finite(static_cast<const float*>(data_of(inputs[i])),
                      static_cast<size_t>(count_of(value.extents))))
        throw std::invalid_argument(
            value.name +
            " holds NaN or infinity, with which oneDNN does not compute as the model says (the "
            "option non_finite lets them through)");
    }
  }

  Program program_;
  Settings settings_;
  int threads_;
  dnnl::engine engine_;
  Plan plan_;
  std::mutex taking_;
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace onednn
}  // namespace edgekit
