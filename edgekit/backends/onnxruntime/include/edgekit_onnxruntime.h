// A region of ONNX Runtime: its model as bytes of the library, a session of its own, and results
// that the session writes to the program's memory.
#pragma once

#include <string>
#include <vector>

#include "edgekit_program.h"
#include "edgekit_region.h"
#include "onnxruntime_table.h"

namespace edgekit {
namespace onnxruntime {

class Library {
 public:
  static const Library& one() {
    static const Library library;
    return library;
  }

  template <typename... Arguments>
  void call(Place place, Arguments... arguments) const {
    check(function<OrtStatus*, Arguments...>(place)(arguments...));
  }

  template <typename Handle>
  void release(Place place, Handle* handle) const {
    if (handle != nullptr) function<void, Handle*>(place)(handle);
  }

  OrtEnv* environment = nullptr;
  OrtMemoryInfo* memory = nullptr;

 private:
  Library() {
    const OrtApiBase* base = OrtGetApiBase();
    table_ = base->table(kTable);
    if (table_ == nullptr)
      throw std::runtime_error(std::string("ONNX Runtime ") + base->version() +
                               " lacks the interface that this program was built for");
    call(kCreateEnv, kErrors, "edgekit", &environment);
    call(kCreateCpuMemoryInfo, kDeviceAllocator, kDefaultMemory, &memory);
  }

  template <typename Result, typename... Arguments>
  auto function(Place place) const -> Result (*)(Arguments...) {
    return reinterpret_cast<Result (*)(Arguments...)>(const_cast<void*>(table_[place]));
  }

  void check(OrtStatus* status) const {
    if (status == nullptr) return;
    const std::string message = function<const char*, const OrtStatus*>(kGetErrorMessage)(status);
    release(kReleaseStatus, status);
    throw std::runtime_error(message);
  }

  const void* const* table_;
};

template <typename Handle, Place kRelease>
struct Held {
  Handle* handle = nullptr;
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Library::one().release(kRelease, handle); }
};

using Value = Held<OrtValue, kReleaseValue>;

inline int element_of(const DLDataType& type) {
  switch (type.code) {
    case kDLFloat: return type.bits == 16 ? kFloat16 : type.bits == 32 ? kFloat : kDouble;
    case kDLInt:
      return type.bits == 8 ? kInt8 : type.bits == 16 ? kInt16 : type.bits == 32 ? kInt32 : kInt64;
    case kDLUInt:
      return type.bits == 8    ? kUint8
             : type.bits == 16 ? kUint16
             : type.bits == 32 ? kUint32
                               : kUint64;
    case kDLBfloat: return kBfloat16;
    default: return kBool;
  }
}

class Session {
 public:
  Session(Blob model, int threads, const std::vector<const char*>& inputs,
          const std::vector<const char*>& outputs)
      : inputs_(inputs), outputs_(outputs) {
    const Library& library = Library::one();
    Held<OrtSessionOptions, kReleaseSessionOptions> options;
    library.call(kCreateSessionOptions, &options.handle);
    library.call(kSetIntraOpNumThreads, options.handle, threads_wanted(threads));
    library.call(kSetInterOpNumThreads, options.handle, 1);
    // Waiting threads would take the CPU from the rest of the model.
    library.call(kAddSessionConfigEntry, options.handle, "session.intra_op.allow_spinning", "0");
    library.call(kCreateSessionFromArray, library.environment,
                 static_cast<const void*>(model.data), model.size, options.handle, &session_.handle);
  }

  void run(const DLTensor* const* given, DLTensor* const* made) {
    std::vector<Value> values(inputs_.size() + outputs_.size());
    std::vector<OrtValue*> handles;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_input = i < inputs_.size();
      hold(is_input ? given[i] : made[i - inputs_.size()], values[i]);
      handles.push_back(values[i].handle);
    }
    Library::one().call(kRun, session_.handle, static_cast<const OrtRunOptions*>(nullptr),
                        inputs_.data(), handles.data(), inputs_.size(), outputs_.data(),
                        outputs_.size(), handles.data() + inputs_.size());
  }

 private:
  static void hold(const DLTensor* tensor, Value& value) {
    size_t bytes = tensor->dtype.bits / 8;
    for (int i = 0; i < tensor->ndim; ++i) bytes *= static_cast<size_t>(tensor->shape[i]);
    const Library& library = Library::one();
    library.call(kCreateTensorWithDataAsOrtValue, static_cast<const OrtMemoryInfo*>(library.memory),
                 data_of(tensor), bytes, static_cast<const int64_t*>(tensor->shape),
                 static_cast<size_t>(tensor->ndim), element_of(tensor->dtype), &value.handle);
  }

  std::vector<const char*> inputs_, outputs_;
  Held<OrtSession, kReleaseSession> session_;
};

}  // namespace onnxruntime
}  // namespace edgekit
