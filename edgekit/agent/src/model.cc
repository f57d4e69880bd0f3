#include "model.h"

#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

#include "calls.h"
#include "gpu.h"
#include "json.h"
#include "npy.h"

namespace edgekit {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::Tensor;

namespace {

constexpr int kPooledAllocator = 2;

Function RequiredMember(const Module& module, const char* name) {
  auto found = Member(module, name);
  if (!found.has_value()) {
    throw std::runtime_error(std::string("the library has no function ") + name +
                             ": it was not built by edgekit");
  }
  return found.value();
}

// dlopen searches the system's folders for a name without a slash, so one is added.
std::string AsPath(const std::string& library) {
  return library.find('/') == std::string::npos ? "./" + library : library;
}

// Sends the host a progress message of a region that takes long.
void HearRegions() {
  auto hear = [](std::string text) { Say(Object().Text("working", text)); };
  Function::SetGlobal("edgekit.progress", ForTvm(Function::FromTyped(std::move(hear))), true);
}

}  // namespace

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

Model Model::Load(const std::string& library, int threads) {
  if (threads > 0) setenv("TVM_NUM_THREADS", std::to_string(threads).c_str(), 1);
  HearRegions();
  int64_t started = Now();
  const int device = DeviceOf(AsPath(library));
  Module loaded = LoadModule(AsPath(library));
  Module machine = Call(RequiredMember(loaded, "vm_load_executable")).cast<Module>();
  const Function initialise = RequiredMember(machine, "vm_initialization");
  const int cpu = static_cast<int>(kDLCPU);
  if (device == cpu) {
    Call(initialise, cpu, 0, kPooledAllocator);
  } else {  // shapes and the like stay in the CPU's memory
    Call(initialise, device, 0, kPooledAllocator, cpu, 0, kPooledAllocator);
  }
  Model model(loaded, machine, RequiredMember(machine, "main"), device);
  model.load_nanoseconds_ = Now() - started;
  model.threads_ = CallGlobal("runtime.NumThreads").cast<int>();
  return model;
}

Any Model::Run(const Tensors& inputs) {
  if (device_ == kDLCPU) return CallWith(main_, {inputs.begin(), inputs.end()});
  Tensors there;
  for (const Tensor& input : inputs) there.push_back(On(device_, input));
  Array<Any> outputs;
  for (const Tensor& output : Flatten(CallWith(main_, {there.begin(), there.end()}))) {
    outputs.push_back(On(kDLCPU, output));  // waits for the kernels
  }
  return outputs;
}

Tensors Model::Flatten(const Any& result) {
  if (auto tensor = result.as<Tensor>()) return {tensor.value()};
  Tensors tensors;
  for (const Any& part : result.cast<Array<Any>>()) {
    for (const Tensor& tensor : Flatten(part)) tensors.push_back(tensor);
  }
  return tensors;
}

void Model::SetInstrument(Function instrument) {
  if (device_ != kDLCPU) {
    throw std::runtime_error("kernels of a GPU run after they were called: they can't be profiled");
  }
  Call(RequiredMember(machine_, "set_instrument"), ForTvm(std::move(instrument)));
}

Tensors ReadSample(const std::string& folder) {
  Tensors inputs;
  for (;;) {
    std::string path = folder + "/input-" + std::to_string(inputs.size()) + ".npy";
    struct stat status;
    if (stat(path.c_str(), &status) != 0) break;
    inputs.push_back(ReadNpy(path));
  }
  return inputs;
}

}  // namespace edgekit
