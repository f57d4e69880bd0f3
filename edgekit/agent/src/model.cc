#include "model.h"

#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

#include "calls.h"
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

// dlopen searches the system's folders for a name without a slash.
std::string AsPath(const std::string& library) {
  return library.find('/') == std::string::npos ? "./" + library : library;
}

// What a region of the model says that takes long: to whoever is at the other end of our output.
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
  Module loaded = LoadModule(AsPath(library));
  Module machine = Call(RequiredMember(loaded, "vm_load_executable")).cast<Module>();
  Call(RequiredMember(machine, "vm_initialization"), static_cast<int>(kDLCPU), 0, kPooledAllocator);
  Model model(loaded, machine, RequiredMember(machine, "main"));
  model.load_nanoseconds_ = Now() - started;
  model.threads_ = CallGlobal("runtime.NumThreads").cast<int>();
  return model;
}

Any Model::Run(const Tensors& inputs) {
  return CallWith(main_, {inputs.begin(), inputs.end()});
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
