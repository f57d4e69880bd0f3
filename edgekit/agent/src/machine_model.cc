// A model for TVM's virtual machine. Only the program with TVM's runtime has it.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "calls.h"
#include "json.h"
#include "model.h"

namespace edgekit {
namespace {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Module;
using TvmTensor = tvm::ffi::Tensor;

constexpr int kPooledAllocator = 2;

Function RequiredMember(const Module& module, const char* name) {
  auto found = Member(module, name);
  if (!found.has_value()) {
    throw std::runtime_error(std::string("the library has no function ") + name +
                             ": it was not built by edgekit");
  }
  return found.value();
}

// Sends the host a progress message of a region that takes long.
void HearRegions() {
  auto hear = [](std::string text) { Say(Object().Text("working", text)); };
  Function::SetGlobal("edgekit.progress", ForTvm(Function::FromTyped(std::move(hear))), true);
}

// Memory that belongs to one of our tensors.
struct Lent {
  std::shared_ptr<void> data;
  void AllocData(DLTensor* tensor) { tensor->data = data.get(); }
  void FreeData(DLTensor*) { data.reset(); }
};

TvmTensor Given(const Tensor& tensor) {
  return TvmTensor::FromNDAlloc(Lent{tensor.data}, tvm::ffi::Shape(tensor.shape),
                                tvm::ffi::StringToDLDataType(tensor.dtype), DLDevice{kDLCPU, 0});
}

Tensor Copied(const TvmTensor& tensor) {
  const DLDataType type = tensor.dtype();
  const auto shape = tensor.shape();
  Tensor copy = NewTensor(tvm::ffi::DLDataTypeToString(type), {shape.begin(), shape.end()},
                          tvm::ffi::GetDataSize(tensor));
  std::memcpy(copy.data.get(), tensor.data_ptr(), copy.bytes);
  return copy;
}

std::vector<TvmTensor> Flatten(const Any& result) {
  if (auto tensor = result.as<TvmTensor>()) return {tensor.value()};
  std::vector<TvmTensor> tensors;
  for (const Any& part : result.cast<Array<Any>>()) {
    for (const TvmTensor& tensor : Flatten(part)) tensors.push_back(tensor);
  }
  return tensors;
}

struct Kernel {
  int64_t calls = 0;
  std::vector<int64_t> nanoseconds;  // one for each inference
};

// Time inside each kernel, without the kernels that it calls.
class Profiler {
 public:
  Profiler(size_t runs, size_t traced) : runs_(runs), traced_(traced) {}

  void Begin(size_t run) {
    run_ = run;
    if (run < traced_) timeline_.emplace_back();
    began_ = Now();
  }

  void End() {
    if (run_ < traced_) timeline_.back().nanoseconds = Now() - began_;
  }

  void Hear(bool before, const std::string& name) {
    const int64_t now = Now();
    if (before) {
      open_.push_back({now, 0});
      return;
    }
    if (open_.empty()) return;
    const Open ended = open_.back();
    open_.pop_back();
    const int64_t taken = now - ended.started;
    if (!open_.empty()) open_.back().within += taken;
    Kernel& kernel = kernels_[name];
    kernel.nanoseconds.resize(runs_);
    kernel.calls += 1;
    kernel.nanoseconds[run_] += taken - ended.within;
    if (run_ < traced_) timeline_.back().calls.push_back({ended.started - began_, taken, name});
  }

  Profiled Found() {
    std::string list, timeline;
    std::map<std::string, size_t> places;
    for (const auto& [name, kernel] : kernels_) {
      places.emplace(name, places.size());
      list += (list.empty() ? "" : ", ") + Object()
                                               .Text("name", name)
                                               .Int("calls", kernel.calls)
                                               .Int("nanoseconds", Median(kernel.nanoseconds))
                                               .Str();
    }
    for (Traced& run : timeline_) {
      Timeline calls;
      std::sort(run.calls.begin(), run.calls.end());
      for (const auto& [start, taken, name] : run.calls) calls.Call(places[name], start, taken);
      timeline += (timeline.empty() ? "" : ", ") + calls.Json(run.nanoseconds);
    }
    return {"[" + list + "]", "[" + timeline + "]"};
  }

 private:
  struct Traced {
    int64_t nanoseconds = 0;
    std::vector<std::tuple<int64_t, int64_t, std::string>> calls;  // start, duration, name
  };
  struct Open {
    int64_t started;
    int64_t within;  // time in the kernels that it called
  };

  size_t runs_, traced_;
  size_t run_ = 0;
  int64_t began_ = 0;
  std::vector<Traced> timeline_;
  std::vector<Open> open_;
  std::map<std::string, Kernel> kernels_;
};

// Runs `work`; an error of TVM's becomes one of ours.
template <typename Work>
auto Guarded(Work work) {
  try {
    return work();
  } catch (const tvm::ffi::Error& error) {
    throw ModelError(error.kind(), error.message());
  }
}

class MachineModel : public Model {
 public:
  MachineModel(const std::string& library, int threads) {
    if (threads > 0) setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 1);
    HearRegions();
    const int64_t started = Now();
    library_ = LoadModule(library);
    machine_ = Call(RequiredMember(*library_, "vm_load_executable")).cast<Module>();
    const Function initialise = RequiredMember(*machine_, "vm_initialization");
    Call(initialise, static_cast<int>(kDLCPU), 0, kPooledAllocator);
    main_ = RequiredMember(*machine_, "main");
    load_nanoseconds_ = Now() - started;
    threads_ = CallGlobal("runtime.NumThreads").cast<int>();
  }

  void Take(const Tensors& inputs) override {
    inputs_.clear();
    for (const Tensor& input : inputs) inputs_.push_back(Given(input));
  }

  void Run() override {
    Guarded([this] {
      result_ = nullptr;
      result_ = CallWith(main_, {inputs_.begin(), inputs_.end()});
    });
  }

  Tensors Outputs() override {
    Tensors outputs;
    for (const TvmTensor& tensor : Flatten(result_)) outputs.push_back(Copied(tensor));
    return outputs;
  }

  Profiled Profile(size_t runs, size_t traced,
                   const std::function<void(size_t)>& done) override {
    Profiler profiler(runs, traced);
    Function hear = Function::FromPacked([&profiler](const AnyView* args, int32_t, Any* result) {
      profiler.Hear(args[2].cast<bool>(), args[1].cast<std::string>());
      *result = 0;  // go on as normal
    });
    Call(RequiredMember(*machine_, "set_instrument"), ForTvm(std::move(hear)));
    for (size_t run = 0; run < runs; ++run) {
      profiler.Begin(run);
      Run();
      profiler.End();
      done(run + 1);
    }
    return profiler.Found();
  }

 private:
  std::optional<Module> library_;  // a Module is never null
  std::optional<Module> machine_;
  Function main_;
  std::vector<TvmTensor> inputs_;
  Any result_;
};

}  // namespace

std::unique_ptr<Model> Model::Load(const std::string& library, int threads) {
  return Guarded([&] { return std::make_unique<MachineModel>(AsPath(library), threads); });
}

}  // namespace edgekit
