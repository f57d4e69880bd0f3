// What the C++ of a region needs to be called: one instance made at the first call, and errors that
// reach the caller as errors. A program without a runtime calls a plain C function. With
// EDGEKIT_WITH_TVM, TVM's virtual machine calls a function of its own interface, whose arguments are
// checked.
//
// A region is a class with
//   Region();                                                    may throw std::exception
//   void run(const DLTensor* const* inputs, DLTensor* const* outputs);   the same
// `run` may be called from several threads at once, and sees tensors that are contiguous, on the
// CPU, and of the shapes and types that EDGEKIT_REGION was given. With
//   static constexpr bool kTakesGpu = true;
// it sees tensors in the memory of the first GPU of NVIDIA's too: all of a call's, or none.
#pragma once

#include <dlpack/dlpack.h>
#ifdef EDGEKIT_WITH_TVM
#include <tvm/ffi/c_api.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace edgekit {

struct Tensor {
  const char* name;
  int rank;
  int64_t shape[8];
  DLDataType dtype;
};

// Bytes that were embedded in the library, as `blobs` of a GeneratedRegion.
struct Blob {
  const unsigned char* data;
  size_t size;
};

inline std::string shape_text(int rank, const int64_t* shape) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

inline bool is_contiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

template <typename Region, typename = void>
struct TakesGpu : std::false_type {};
template <typename Region>
struct TakesGpu<Region, std::void_t<decltype(Region::kTakesGpu)>>
    : std::bool_constant<Region::kTakesGpu> {};

inline bool is_on_gpu(const DLTensor& tensor) {
  return tensor.device.device_type == kDLCUDA && tensor.device.device_id == 0;
}

// `first` is where the call's first tensor lies.
inline void check_place(const DLTensor& given, const DLTensor& first, const std::string& name,
                        bool takes_gpu) {
  if (given.device.device_type != kDLCPU && !(takes_gpu && is_on_gpu(given)))
    throw std::invalid_argument(name + " is not in the CPU's memory" +
                                (takes_gpu ? ", and not in that of the first GPU" : ""));
  if (given.device.device_type != first.device.device_type)
    throw std::invalid_argument(name + " does not lie where the other tensors do");
}

inline void check(const DLTensor* given, const Tensor& wanted) {
  const std::string name = wanted.name;
  if (given == nullptr) throw std::invalid_argument(name + " is no tensor");
  bool same = given->ndim == wanted.rank;
  for (int i = 0; same && i < wanted.rank; ++i) same = given->shape[i] == wanted.shape[i];
  if (!same)
    throw std::invalid_argument(name + " has shape " + shape_text(given->ndim, given->shape) +
                                ", and this region takes " +
                                shape_text(wanted.rank, wanted.shape));
  if (given->dtype.code != wanted.dtype.code || given->dtype.bits != wanted.dtype.bits ||
      given->dtype.lanes != wanted.dtype.lanes)
    throw std::invalid_argument(name + " has another type than this region takes");
  if (!is_contiguous(*given)) throw std::invalid_argument(name + " is not contiguous");
}

inline DLTensor described(void* data, const Tensor& tensor, DLDeviceType place) {
  DLTensor made{};
  made.data = data;
  made.device = {place, 0};
  made.ndim = tensor.rank;
  made.dtype = tensor.dtype;
  made.shape = const_cast<int64_t*>(tensor.shape);
  return made;
}

inline void* data_of(const DLTensor* tensor) {
  return static_cast<char*>(tensor->data) + tensor->byte_offset;
}

// Made at the first call: a library that is loaded and never called costs nothing. A failed
// attempt is not kept, so that the next call says again what is wrong.
template <typename Region>
Region& instance_of() {
  static std::mutex making;
  static std::unique_ptr<Region> made;
  std::lock_guard<std::mutex> lock(making);
  if (!made) made.reset(new Region());
  return *made;
}

inline std::string failure_of(const char* symbol, const std::exception* error) {
  return "region " + std::string(symbol) + (error ? ": " + std::string(error->what()) : " failed");
}

// The threads of the program whose call was the last; 0 is unknown.
inline std::atomic<int>& program_threads() {
  static std::atomic<int> threads{0};
  return threads;
}

// Runs a region on memory of the shapes and types that it was made for.
template <typename Region, int Inputs, int Outputs>
int call_plain(const char* symbol, const Tensor (&inputs)[Inputs], const Tensor (&outputs)[Outputs],
               const void* const* given, void* const* made, int threads, char* text, size_t size,
               DLDeviceType place = kDLCPU) {
  std::string failure;
  try {
    program_threads() = threads;
    DLTensor from[Inputs], to[Outputs];
    const DLTensor* sources[Inputs];
    DLTensor* results[Outputs];
    for (int i = 0; i < Inputs; ++i)
      sources[i] = &(from[i] = described(const_cast<void*>(given[i]), inputs[i], place));
    for (int i = 0; i < Outputs; ++i) results[i] = &(to[i] = described(made[i], outputs[i], place));
    instance_of<Region>().run(sources, results);
    return 0;
  } catch (const std::exception& error) {
    failure = failure_of(symbol, &error);
  } catch (...) {
    failure = failure_of(symbol, nullptr);
  }
  std::snprintf(text, size, "%s", failure.c_str());
  return -1;
}

#ifdef EDGEKIT_WITH_TVM
inline DLTensor* tensor_of(const TVMFFIAny& argument) {
  if (argument.type_index == kTVMFFIDLTensorPtr) return static_cast<DLTensor*>(argument.v_ptr);
  if (argument.type_index == kTVMFFITensor)
    return reinterpret_cast<DLTensor*>(reinterpret_cast<char*>(argument.v_obj) +
                                       sizeof(TVMFFIObject));
  return nullptr;
}

template <typename Region, int Inputs, int Outputs>
int call(const char* symbol, const Tensor (&inputs)[Inputs], const Tensor (&outputs)[Outputs],
         const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  try {
    if (count != Inputs + Outputs)
      throw std::invalid_argument("it takes " + std::to_string(Inputs + Outputs) +
                                  " tensors and got " + std::to_string(count));
    const DLTensor* given[Inputs];
    DLTensor* wanted[Outputs];
    for (int i = 0; i < Inputs; ++i) check(given[i] = tensor_of(arguments[i]), inputs[i]);
    for (int i = 0; i < Outputs; ++i) check(wanted[i] = tensor_of(arguments[Inputs + i]), outputs[i]);
    const bool takes_gpu = TakesGpu<Region>::value;
    for (int i = 0; i < Inputs; ++i) check_place(*given[i], *given[0], inputs[i].name, takes_gpu);
    for (int i = 0; i < Outputs; ++i)
      check_place(*wanted[i], Inputs > 0 ? *given[0] : *wanted[0], outputs[i].name, takes_gpu);
    instance_of<Region>().run(given, wanted);
    result->type_index = kTVMFFINone;
    result->zero_padding = 0;
    result->v_int64 = 0;
    return 0;
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", failure_of(symbol, &error).c_str());
  } catch (...) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", failure_of(symbol, nullptr).c_str());
  }
  return -1;
}
#endif

}  // namespace edgekit

// `inputs` and `outputs` are arrays of edgekit::Tensor.
#define EDGEKIT_REGION(symbol, Region, inputs, outputs)                                       \
  extern "C" __attribute__((visibility("hidden"))) int edgekit_region_##symbol(               \
      const void* const* given, void* const* made, int threads, char* text, size_t size) {    \
    return edgekit::call_plain<Region>(#symbol, inputs, outputs, given, made, threads, text,  \
                                       size);                                                 \
  }                                                                                           \
  EDGEKIT_REGION_FOR_TVM(symbol, Region, inputs, outputs)

#ifdef EDGEKIT_WITH_TVM
#define EDGEKIT_REGION_FOR_TVM(symbol, Region, inputs, outputs)                               \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##symbol(                   \
      void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {                  \
    return edgekit::call<Region>(#symbol, inputs, outputs, arguments, count, result);         \
  }

#else
#define EDGEKIT_REGION_FOR_TVM(symbol, Region, inputs, outputs)
#endif

// A function that runs a region with kTakesGpu on memory of the first GPU of NVIDIA's, in the order of its
// default stream.
#define EDGEKIT_REGION_ON_GPU(symbol, Region, inputs, outputs)                                \
  extern "C" __attribute__((visibility("hidden"))) int edgekit_region_gpu_##symbol(           \
      const void* const* given, void* const* made, int threads, char* text, size_t size) {    \
    return edgekit::call_plain<Region>(#symbol, inputs, outputs, given, made, threads, text,  \
                                       size, kDLCUDA);                                        \
  }

// A function that returns how many bytes of inputs and outputs a call copies or rearranges:
// `copied_in_a_call` of the Region.
#define EDGEKIT_COPIED(symbol, Region)                                                        \
  extern "C" __attribute__((visibility("default"))) size_t edgekit_copied_##symbol() {        \
    return edgekit::instance_of<Region>().copied_in_a_call();                                 \
  }
