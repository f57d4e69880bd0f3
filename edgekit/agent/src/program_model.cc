// A model without a runtime, called through the C interface of its own library.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "edgekit.h"
#include "json.h"
#include "model.h"

namespace edgekit {
namespace {

template <typename Function>
Function* Symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw ModelError("error", std::string("the library lacks ") + name);
  return reinterpret_cast<Function*>(found);
}

class ProgramModel : public Model {
 public:
  ProgramModel(void* library, int threads) {
    const int64_t started = Now();
    info_ = Symbol<decltype(edgekit_model_info)>(library, "edgekit_model_info")();
    if (info_->interface != EDGEKIT_INTERFACE) {
      throw ModelError("error", "the model's interface has version " +
                                    std::to_string(info_->interface) + ", and this program knows " +
                                    std::to_string(EDGEKIT_INTERFACE));
    }
    run_ = Symbol<decltype(edgekit_run)>(library, "edgekit_run");
    step_ = Symbol<decltype(edgekit_run_step)>(library, "edgekit_run_step");
    input_ = Symbol<decltype(edgekit_input)>(library, "edgekit_input");
    output_ = Symbol<decltype(edgekit_output)>(library, "edgekit_output");
    // Absent in a model that an older edgekit built.
    on_device_ = reinterpret_cast<decltype(edgekit_device_nanoseconds)*>(
        dlsym(library, "edgekit_device_nanoseconds"));
    error_ = Symbol<decltype(edgekit_error)>(library, "edgekit_error");
    destroy_ = Symbol<decltype(edgekit_destroy)>(library, "edgekit_destroy");
    // Sends the host a progress message of a region that takes long.
    Symbol<decltype(edgekit_on_progress)>(library, "edgekit_on_progress")(
        [](const char* text) { Say(Object().Text("working", text)); });
    program_ = Symbol<decltype(edgekit_create)>(library, "edgekit_create")(nullptr, threads);
    if (program_ == nullptr) {
      throw ModelError("MemoryError", "there is no memory for " +
                                          std::to_string(info_->arena_bytes) + " bytes of tensors");
    }
    threads_ = Symbol<decltype(edgekit_threads)>(library, "edgekit_threads")(program_);
    load_nanoseconds_ = Now() - started;
  }

  ~ProgramModel() override { destroy_(program_); }

  void Take(const Tensors& inputs) override {
    if (inputs.size() != info_->inputs) {
      throw ModelError("ValueError", "the model takes " + std::to_string(info_->inputs) +
                                         " inputs, not " + std::to_string(inputs.size()));
    }
    addresses_.assign(inputs.size() + 1, nullptr);
    for (unsigned k = 0; k < info_->inputs; ++k) {
      const edgekit_tensor& wanted = info_->input[k];
      if (inputs[k].bytes != wanted.bytes || inputs[k].dtype != wanted.dtype) {
        throw ModelError("ValueError", std::string("the input ") + wanted.name +
                                           " has another type or size than the model takes");
      }
      addresses_[k] = inputs[k].data.get();
    }
    inputs_ = inputs;
  }

  void Run() override { Check(run_(program_, addresses_.data(), nullptr)); }

  Tensors Outputs() override {
    Tensors outputs;
    for (unsigned k = 0; k < info_->outputs; ++k) {
      const edgekit_tensor& made = info_->output[k];
      outputs.push_back(NewTensor(made.dtype, {made.shape, made.shape + made.rank}, made.bytes));
      std::memcpy(outputs.back().data.get(), output_(program_, k), made.bytes);
    }
    return outputs;
  }

  Profiled Profile(size_t runs, size_t traced,
                   const std::function<void(size_t)>& done) override {
    std::string timeline;
    const int64_t cost = CostOfTheClock();
    std::vector<int64_t> starts(info_->steps);
    std::vector<std::vector<int64_t>> taken(info_->steps, std::vector<int64_t>(runs));
    std::vector<std::vector<int64_t>> on_device = taken;
    for (size_t run = 0; run < runs; ++run) {
      const int64_t began = Now();
      for (unsigned k = 0; k < info_->inputs; ++k) {
        std::memcpy(input_(program_, k), addresses_[k], info_->input[k].bytes);
      }
      for (unsigned step = 0; step < info_->steps; ++step) {
        const int64_t started = Now();
        const int status = step_(program_, step);
        taken[step][run] = std::max<int64_t>(Now() - started - cost, 0);
        if (on_device_ != nullptr) on_device[step][run] = on_device_(program_);
        Check(status);
        starts[step] = started - began;
      }
      const int64_t whole = Now() - began;
      if (run < traced) {
        Timeline calls;
        for (size_t step = 0; step < starts.size(); ++step) {
          calls.Call(step, starts[step], taken[step][run]);
        }
        timeline += (timeline.empty() ? "" : ", ") + calls.Json(whole);
      }
      done(run + 1);
    }
    std::string list;
    for (unsigned step = 0; step < info_->steps; ++step) {
      Object one;
      one.Text("name", info_->step[step])
          .Int("calls", static_cast<int64_t>(runs))
          .Int("nanoseconds", Median(taken[step]));
      const int64_t device = Median(on_device[step]);
      if (device > 0) one.Int("device_nanoseconds", device);
      list += (list.empty() ? "" : ", ") + one.Str();
    }
    return {"[" + list + "]", "[" + timeline + "]"};
  }

 private:
  // What reading the clock adds to each step.
  static int64_t CostOfTheClock() {
    std::vector<int64_t> taken(101);
    for (int64_t& one : taken) {
      const int64_t started = Now();
      one = Now() - started;
    }
    return Median(taken);
  }

  void Check(int status) const {
    if (status != EDGEKIT_OK) {
      throw ModelError(status == EDGEKIT_INDEX_OUTSIDE ? "IndexError" : "RuntimeError",
                       error_(program_));
    }
  }

  const edgekit_info* info_;
  decltype(edgekit_run)* run_;
  decltype(edgekit_run_step)* step_;
  decltype(edgekit_input)* input_;
  decltype(edgekit_output)* output_;
  decltype(edgekit_device_nanoseconds)* on_device_;
  decltype(edgekit_error)* error_;
  decltype(edgekit_destroy)* destroy_;
  edgekit_program* program_;
  Tensors inputs_;
  std::vector<const void*> addresses_;
};

}  // namespace

std::unique_ptr<Model> Model::Load(const std::string& library, int threads) {
  void* opened = dlopen(AsPath(library).c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* reason = dlerror();
    throw ModelError("error", reason == nullptr ? "the library does not load" : reason);
  }
  return std::make_unique<ProgramModel>(opened, threads);
}

}  // namespace edgekit
