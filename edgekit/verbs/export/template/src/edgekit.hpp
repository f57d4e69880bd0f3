// A model of edgekit in C++17: this header and edgekit.h are all that a program needs.
//
//   edgekit::Model model("lib/model.so");
//   edgekit::Array image({1, 3, 224, 224}, pixels.data(), pixels.size() * sizeof(float));
//   for (float score : model.Run({image})[0].As<float>()) ...
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "edgekit.h"

namespace edgekit {

// What the model says; `code` is one of edgekit.h.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& what) : std::runtime_error(what), code(code) {}
  const int code;
};

// An input or an output.
struct Spec {
  std::string name;
  std::string dtype;              // as numpy names it: float32, int8, bool
  std::vector<int64_t> shape;     // the largest size of each dimension
  std::vector<int64_t> smallest;  // the same as in `shape` where the size does not vary
  size_t bytes;                   // of the largest
};

// A tensor without gaps.
struct Array {
  Array() = default;
  Array(std::vector<int64_t> shape, const void* from, size_t bytes)
      : shape(std::move(shape)), data(bytes) {
    if (bytes > 0) std::memcpy(data.data(), from, bytes);
  }

  template <typename T>
  std::vector<T> As() const {
    std::vector<T> values(data.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data.data(), values.size() * sizeof(T));
    return values;
  }

  std::vector<int64_t> shape;
  std::vector<unsigned char> data;
};

// "float32[1, 3, 224, 224]", "int64[1, 1..512]"
inline std::string Typed(const std::string& dtype, const std::vector<int64_t>& smallest,
                         const std::vector<int64_t>& shape) {
  std::string text = dtype + "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    if (smallest[i] != shape[i]) text += std::to_string(smallest[i]) + "..";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

// One program of the model, for one thread at a time; other threads make programs of their own.
class Model {
 public:
  // Takes one thread for each core, or as many as `threads` says. Throws std::runtime_error if the
  // library can't be loaded.
  explicit Model(const std::string& library, int threads = 0) {
    // The path needs a slash: without one, dlopen searches the system's folders.
    const std::string path = library.find('/') == std::string::npos ? "./" + library : library;
    void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      const char* reason = dlerror();
      throw std::runtime_error(reason == nullptr ? "the model does not load" : reason);
    }
    info_ = Symbol<decltype(edgekit_model_info)>(opened, "edgekit_model_info")();
    if (info_->interface != EDGEKIT_INTERFACE) {
      throw std::runtime_error("the model's interface has another version than edgekit.h");
    }
    run_ = Symbol<decltype(edgekit_run)>(opened, "edgekit_run");
    run_sizes_ = Symbol<decltype(edgekit_run_sizes)>(opened, "edgekit_run_sizes");
    error_ = Symbol<decltype(edgekit_error)>(opened, "edgekit_error");
    program_.reset(Symbol<decltype(edgekit_create)>(opened, "edgekit_create")(nullptr, threads),
                   Symbol<decltype(edgekit_destroy)>(opened, "edgekit_destroy"));
    if (program_ == nullptr) throw std::bad_alloc();
    inputs = Specs(info_->input, info_->model_inputs, 0);
    outputs = Specs(info_->output, info_->model_outputs, 1);
  }

  // Takes inputs in the order of `inputs` and returns outputs in the order of `outputs`, of their
  // true sizes where sizes vary. Throws std::invalid_argument if an input does not fit, Error if the
  // model fails.
  std::vector<Array> Run(const std::vector<Array>& given) {
    if (given.size() != inputs.size()) {
      throw std::invalid_argument("the model takes " + std::to_string(inputs.size()) +
                                  " inputs, not " + std::to_string(given.size()));
    }
    std::vector<const void*> in;
    std::vector<const int64_t*> shapes;
    for (size_t k = 0; k < given.size(); ++k) {
      if (!Fits(inputs[k], given[k])) {
        const Spec& spec = inputs[k];
        throw std::invalid_argument(
            "the input " + spec.name + " is " + Typed(spec.dtype, spec.smallest, spec.shape) +
            ", not " + std::to_string(given[k].data.size()) + " bytes of " +
            Typed("", given[k].shape, given[k].shape));
      }
      in.push_back(given[k].data.data());
      shapes.push_back(given[k].shape.data());
    }
    std::vector<Array> made(outputs.size());
    std::vector<void*> out;
    std::vector<int64_t*> sizes;
    for (size_t k = 0; k < made.size(); ++k) {
      made[k].shape = outputs[k].shape;
      made[k].data.resize(outputs[k].bytes);
      out.push_back(made[k].data.data());
      sizes.push_back(made[k].shape.data());
    }
    Run(in.data(), shapes.data(), out.data(), sizes.data());
    for (size_t k = 0; k < made.size(); ++k) {
      made[k].data.resize(Elements(made[k].shape) * ElementBytes(outputs[k]));
    }
    return made;
  }

  // The same with memory of the caller's, as edgekit_run_sizes in edgekit.h.
  void Run(const void* const* in, const int64_t* const* shapes, void* const* out,
           int64_t* const* made) {
    const int status = info_->varyings > 0 ? run_sizes_(program_.get(), in, shapes, out, made)
                                           : run_(program_.get(), in, out);
    if (status != EDGEKIT_OK) throw Error(status, error_(program_.get()));
  }

  std::vector<Spec> inputs, outputs;

  static size_t Elements(const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    return count;
  }

  static size_t ElementBytes(const Spec& spec) {
    const size_t count = Elements(spec.shape);
    return count > 0 ? spec.bytes / count : 0;
  }

 private:
  template <typename Function>
  static Function* Symbol(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) {
      throw std::runtime_error(std::string("the model's library has no function ") + name);
    }
    return reinterpret_cast<Function*>(found);
  }

  std::vector<Spec> Specs(const edgekit_tensor* from, unsigned count, int is_output) const {
    std::vector<Spec> specs;
    for (unsigned k = 0; k < count; ++k) {
      const std::vector<int64_t> shape(from[k].shape, from[k].shape + from[k].rank);
      specs.push_back({from[k].name, from[k].dtype, shape, shape, from[k].bytes});
    }
    for (unsigned k = 0; k < info_->varyings; ++k) {
      const edgekit_varying& one = info_->varying[k];
      if (one.is_output == is_output) specs[one.tensor].smallest[one.dimension] = one.smallest;
    }
    return specs;
  }

  static bool Fits(const Spec& spec, const Array& array) {
    bool fits = array.shape.size() == spec.shape.size();
    for (size_t k = 0; fits && k < spec.shape.size(); ++k) {
      fits = spec.smallest[k] <= array.shape[k] && array.shape[k] <= spec.shape[k];
    }
    return fits && array.data.size() == Elements(array.shape) * ElementBytes(spec);
  }

  const edgekit_info* info_;
  decltype(edgekit_run)* run_;
  decltype(edgekit_run_sizes)* run_sizes_;
  decltype(edgekit_error)* error_;
  std::shared_ptr<edgekit_program> program_;
};

}  // namespace edgekit
