// What the C++ of every ncnn region shares: one ncnn::Net for each loaded region, weights read
// where they lie in the library, tensors wrapped where ncnn's memory layout allows, outputs
// computed in the caller's tensors (edgekit_ncnn_landing.h), and errors that name the layer.
#pragma once

#include <ncnn/allocator.h>
#include <ncnn/cpu.h>
#include <ncnn/datareader.h>
#include <ncnn/layer_type.h>
#include <ncnn/net.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "edgekit_ncnn_landing.h"
#include "edgekit_ncnn_pages.h"
#include "edgekit_ncnn_vulkan.h"
#include "edgekit_region.h"

namespace edgekit {
namespace ncnn_net {

// What the model has. kStored are int8, kStoredUnsigned uint8, in ncnn one step higher
// (rules/quantised.py says why); kTurned are kStored whose channels come last in the model. kPlace
// is one int64, in ncnn a float.
enum Form { kFloats, kPlace, kStored, kStoredUnsigned, kTurned };

// A tensor at the region's boundary as ncnn holds it; extents from the outermost to the innermost.
struct Held {
  const char* name;
  int blob;
  int rank;
  int extents[4];
  Form form;
};

struct Named {
  const char* layer;
  int blob;
};

struct Graph {
  const int32_t* words;
  size_t size;
  Blob weights;
  const Held* inputs;
  int input_count;
  const Held* outputs;
  int output_count;
  const Named* layers;
  size_t layer_count;
};

struct Settings {
  int threads;
  bool packing, winograd, sgemm, light_mode, fp16_storage, fp16_arithmetic, bf16_storage;
  bool vulkan, software_vulkan;
  bool only_finite;
};

// Never reads beyond the end, which ncnn's own reader of memory does; weights are referenced, not
// copied.
class BoundedReader : public ncnn::DataReader {
 public:
  BoundedReader(const void* data, size_t size)
      : next_(static_cast<const unsigned char*>(data)), left_(size) {}

  size_t read(void* buffer, size_t size) const override {
    const void* from = nullptr;
    const size_t taken = reference(size < left_ ? size : left_, &from);
    if (taken) std::memcpy(buffer, from, taken);
    return taken;
  }

  size_t reference(size_t size, const void** from) const override {
    if (size > left_) return 0;
    *from = next_;
    next_ += size;
    left_ -= size;
    return size;
  }

  size_t left() const { return left_; }

 private:
  mutable const unsigned char* next_;
  mutable size_t left_;
};


inline ncnn::Mat wrap(const Held& held, void* data, ncnn::Allocator* allocator) {
  const int* e = held.extents;
  switch (held.rank) {
    case 1: return ncnn::Mat(e[0], data, 4u, allocator);
    case 2: return ncnn::Mat(e[1], e[0], data, 4u, allocator);
    case 3: return ncnn::Mat(e[2], e[1], e[0], data, 4u, allocator);
    default: return ncnn::Mat(e[3], e[2], e[1], e[0], data, 4u, allocator);
  }
}

inline bool is_finite(const float* values, size_t count) {
  const uint32_t exponent = 0x7f800000u;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bad |= (bits & exponent) == exponent;
  }
  return bad == 0;
}

// The blobs of one call, and of the calls at the same time: pooled, so that memory is not asked of
// the system again and again. ncnn's own pool would make it copy every output once more.
struct Pools {
  ncnn::PoolAllocator blobs;
  ncnn::PoolAllocator workspace;
};

class Runner {
 public:
  Runner(const Graph& graph, const Settings& settings) : graph_(graph), settings_(settings) {
    ncnn::Option& option = net_.opt;
    option.num_threads = threads(settings.threads);
    option.lightmode = settings.light_mode;
    option.use_packing_layout = settings.packing;
    option.use_winograd_convolution = settings.winograd;
    option.use_sgemm_convolution = settings.sgemm;
    option.use_fp16_packed = settings.fp16_storage;
    option.use_fp16_storage = settings.fp16_storage;
    option.use_fp16_arithmetic = settings.fp16_arithmetic;
    option.use_bf16_packed = settings.bf16_storage;
    option.use_bf16_storage = settings.bf16_storage;
    option.use_vulkan_compute = false;
    if (settings.vulkan) on_gpu_ = load_on_gpu();
    if (!on_gpu_) load();
    if (on_gpu_ || !keeps_fp32() || !settings.light_mode) return;
    for (int i = 0; i < graph.output_count; ++i) {
      const Held& held = graph.outputs[i];
      if (held.form == kFloats) land(net_, held.blob, i, wrap(held, nullptr, nullptr));
    }
  }

  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    // ncnn counts the users of an input in this array: its in-place layers read the counter without
    // checking that there is one. It never reaches one, so they never overwrite an input.
    int users[kMostTensors];
    if (graph_.input_count > kMostTensors) throw std::length_error("too many inputs");
    uint64_t copied = 0;
    CallMemory memory(pools_.blobs, graph_.output_count);
    for (int i = 0; i < graph_.output_count; ++i)
      if (is_aligned(data_of(outputs[i]))) memory.give(i, data_of(outputs[i]));
    ncnn::Extractor extractor = make_extractor(memory);
    for (int i = 0; i < graph_.input_count; ++i) {
      const Held& held = graph_.inputs[i];
      users[i] = 1 << 30;
      ncnn::Mat given = take(held, data_of(inputs[i]), &users[i], &copied);
      if (extractor.input(held.blob, given) != 0)
        throw std::runtime_error(std::string(held.name) + " is no input of ncnn's graph");
    }
    for (int i = 0; i < graph_.output_count; ++i) {
      const Held& held = graph_.outputs[i];
      ncnn::Mat made;
      const int problem = extractor.extract(held.blob, made, keeps_fp32() ? 1 : 0);
      if (problem != 0 || made.empty()) throw std::runtime_error(explain(problem, inputs));
      put(held, made, data_of(outputs[i]), &copied);
    }
    calls_.fetch_add(1, std::memory_order_relaxed);
    copied_.fetch_add(copied, std::memory_order_relaxed);
  }

  // Bytes of inputs and outputs that were copied: in all calls so far, and in one on average.
  uint64_t copied() const { return copied_.load(std::memory_order_relaxed); }
  uint64_t copied_in_a_call() const {
    const uint64_t calls = calls_.load(std::memory_order_relaxed);
    return calls ? copied() / calls : 0;
  }

 private:
  static constexpr int kMostTensors = 64;
  static constexpr int kNoMemory = -100;
#if defined(__x86_64__)
  static constexpr uintptr_t kAlignment = 64;  // of the widest vectors
#else
  static constexpr uintptr_t kAlignment = 16;
#endif

  // 0 follows TVM's own number, as everything on a device does; without one, the big cores. More
  // threads than this process may use cores would wait for each other.
  static int threads(int wanted) {
    if (wanted == 0) {
      const char* tvm = std::getenv("TVM_NUM_THREADS");
      if (tvm != nullptr) wanted = std::atoi(tvm);
    }
    if (wanted <= 0) wanted = ncnn::get_physical_big_cpu_count();
    return std::max(1, std::min(wanted, usable_cores()));
  }

  static int usable_cores() {
    cpu_set_t cores;
    // A machine of more cores than the set holds is none that this could limit.
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return CPU_SETSIZE;
    return CPU_COUNT(&cores);
  }

  // Returns whether the layers are there; says where they run.
  bool load_on_gpu() {
    const Gpu& found = gpu(settings_.software_vulkan);
    if (found.index < 0) {
      tell_cpu(found.name);
      return false;
    }
    take_gpu(net_, found.index);
    try {
      load();
    } catch (const std::exception& error) {
      net_.clear();
      net_.opt.use_vulkan_compute = false;
      tell_cpu("on " + found.name + ", " + error.what());
      return false;
    }
    tell("note: ncnn runs " + share_on_gpu(net_) + " on " + found.name + " through Vulkan");
    return true;
  }

  void load() {
    BoundedReader words(graph_.words, graph_.size);
    if (net_.load_param_bin(words) != 0)
      throw std::runtime_error("ncnn does not take the graph: was it built with all its layers?");
    BoundedReader weights(graph_.weights.data, graph_.weights.size);
    if (net_.load_model(weights) != 0)
      throw std::runtime_error("ncnn could not read the weights of the layers: too few, or no "
                               "memory for them");
    if (weights.left() != 0)
      throw std::runtime_error("the weights have " + std::to_string(weights.left()) +
                               " bytes more than the layers read");
  }

  bool keeps_fp32() const { return !settings_.fp16_storage && !settings_.bf16_storage; }

  static bool is_aligned(const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
  }

  // The memory has to outlive it.
  ncnn::Extractor make_extractor(CallMemory& memory) {
    ncnn::Extractor extractor = net_.create_extractor();
    extractor.set_blob_allocator(&memory);
    extractor.set_workspace_allocator(&pools_.workspace);
    return extractor;
  }

  ncnn::Mat take(const Held& held, void* data, int* users, uint64_t* copied) {
    if (held.form != kFloats)
      return take_stored(held, static_cast<const unsigned char*>(data), copied);
    const ncnn::Mat shape = wrap(held, data, nullptr);
    const size_t plane = static_cast<size_t>(shape.w) * shape.h * shape.d;
    const size_t count = plane * shape.c;
    if (settings_.only_finite && !is_finite(static_cast<const float*>(data), count))
      throw std::invalid_argument(
          std::string(held.name) +
          " holds NaN or infinity, with which ncnn does not compute as the model says (the option "
          "non_finite lets them through)");
    if (is_aligned(data) && (shape.dims < 3 || shape.cstep == plane)) {
      ncnn::Mat wrapped = shape;
      wrapped.refcount = users;
      return wrapped;
    }
    ncnn::Mat copy;
    copy.create_like(shape, &pools_.blobs);
    if (copy.empty()) throw std::runtime_error(no_memory(held.name));
    for (int c = 0; c < shape.c; ++c)
      std::memcpy(copy.channel(c), static_cast<const float*>(data) + c * plane, plane * 4);
    *copied += count * 4;
    return copy;
  }

  static constexpr int kHeldAbove = 1;

  // Stored integers of one channel, as the caller has them.
  template <typename Byte>
  struct Channel {
    Byte* first;
    size_t step;
    unsigned flipped;  // the bit that makes uint8 of int8

    Channel(const Held& held, Byte* data, int c, int channels, int plane)
        : first(data + (held.form == kTurned ? c : static_cast<size_t>(c) * plane)),
          step(held.form == kTurned ? channels : 1),
          flipped(held.form == kStoredUnsigned ? 0x80u : 0u) {}
    int8_t get(int i) const { return static_cast<int8_t>(first[i * step] ^ flipped); }
    void set(int i, int8_t value) const {
      first[i * step] = static_cast<Byte>(static_cast<unsigned char>(value) ^ flipped);
    }
  };

  ncnn::Mat take_stored(const Held& held, const unsigned char* data, uint64_t* copied) {
    const ncnn::Mat shape = wrap(held, nullptr, nullptr);
    ncnn::Mat copy;
    if (held.rank == 1) copy.create(shape.w, 1u, &pools_.blobs);
    else copy.create(shape.w, shape.h, shape.c, 1u, &pools_.blobs);
    if (copy.empty()) throw std::runtime_error(no_memory(held.name));
    const int plane = shape.w * shape.h;
    for (int c = 0; c < shape.c; ++c) {
      const Channel<const unsigned char> from(held, data, c, shape.c, plane);
      int8_t* to = copy.channel(c);
      for (int i = 0; i < plane; ++i)
        to[i] = static_cast<int8_t>(std::min(from.get(i) + kHeldAbove, 127));
    }
    *copied += static_cast<uint64_t>(plane) * shape.c;
    return copy;
  }

  // Integers, or floats that a dense layer has not rounded.
  void put_stored(const Held& held, const ncnn::Mat& made, unsigned char* data, uint64_t* copied) {
    const ncnn::Mat shape = wrap(held, nullptr, nullptr);
    ncnn::Mat flat = made;
    if (made.elempack != 1) ncnn::convert_packing(made, flat, 1, net_.opt);
    if (flat.empty()) throw std::runtime_error(no_memory(held.name));
    const bool rounded = flat.elemsize == 1u;
    if (!same_extents(flat, shape) || (!rounded && flat.elemsize != 4u))
      throw std::runtime_error(came_out(held, flat, shape));
    const int plane = shape.w * shape.h;
    for (int c = 0; c < shape.c; ++c) {
      const ncnn::Mat channel = flat.channel(c);
      const int8_t* steps = channel;
      const float* floats = channel;
      const Channel<unsigned char> to(held, data, c, shape.c, plane);
      for (int i = 0; i < plane; ++i) {
        const float value = rounded ? steps[i] : std::round(floats[i]);
        to.set(i, static_cast<int8_t>(std::max(std::min(value, 127.f), -127.f) - kHeldAbove));
      }
    }
    *copied += static_cast<uint64_t>(plane) * shape.c;
  }

  void put_place(const Held& held, const ncnn::Mat& made, int64_t* data, uint64_t* copied) {
    const ncnn::Mat shape = wrap(held, nullptr, nullptr);
    if (!same_extents(made, shape) || made.elempack != 1 || made.w * made.h * made.d * made.c != 1)
      throw std::runtime_error(came_out(held, made, shape));
    *data = static_cast<int64_t>(static_cast<const float*>(made.data)[0]);
    *copied += sizeof(int64_t);
  }

  void put(const Held& held, const ncnn::Mat& made, void* data, uint64_t* copied) {
    if (held.form == kPlace)
      return put_place(held, made, static_cast<int64_t*>(data), copied);
    if (held.form != kFloats)
      return put_stored(held, made, static_cast<unsigned char*>(data), copied);
    ncnn::Mat target = wrap(held, data, nullptr);
    const size_t plane = static_cast<size_t>(target.w) * target.h * target.d;
    target.cstep = target.dims < 3 ? target.cstep : plane;
    ncnn::Mat flat = made;
    if (made.elempack != 1) {
      flat = target;
      ncnn::Option option = net_.opt;
      option.blob_allocator = nullptr;
      ncnn::convert_packing(made, flat, 1, option);
      if (flat.empty()) throw std::runtime_error(no_memory(held.name));
    }
    if (!same_extents(flat, target) || flat.elemsize != 4u)
      throw std::runtime_error(came_out(held, flat, target));
    if (flat.data == data) return;
    for (int c = 0; c < flat.c; ++c)
      std::memcpy(static_cast<float*>(data) + c * plane, flat.channel(c), plane * 4);
    *copied += plane * flat.c * 4;
  }

  static bool same_extents(const ncnn::Mat& one, const ncnn::Mat& other) {
    return one.dims == other.dims && one.w == other.w && one.h == other.h && one.d == other.d &&
           one.c == other.c;
  }

  static std::string came_out(const Held& held, const ncnn::Mat& made, const ncnn::Mat& wanted) {
    return std::string(held.name) + " came out as " + shape_of(made) + ", and is to be " +
           shape_of(wanted);
  }

  static std::string shape_of(const ncnn::Mat& mat) {
    return std::to_string(mat.dims) + " axes, " + std::to_string(mat.c) + " x " +
           std::to_string(mat.d) + " x " + std::to_string(mat.h) + " x " + std::to_string(mat.w);
  }

  static std::string no_memory(const std::string& what) {
    return what + ": ncnn has no memory for it";
  }

  // ncnn does not say which layer failed: computed again, one after the other, the first that
  // fails is the one.
  std::string explain(int problem, const DLTensor* const* inputs) {
    CallMemory memory(pools_.blobs);
    ncnn::Extractor extractor = make_extractor(memory);
    extractor.set_light_mode(false);
    int users[kMostTensors];
    uint64_t copied = 0;
    for (int i = 0; i < graph_.input_count; ++i) {
      users[i] = 1 << 30;
      ncnn::Mat given = take(graph_.inputs[i], data_of(inputs[i]), &users[i], &copied);
      extractor.input(graph_.inputs[i].blob, given);
    }
    for (size_t i = 0; i < graph_.layer_count; ++i) {
      ncnn::Mat made;
      const int again = extractor.extract(graph_.layers[i].blob, made, 1);
      if (again == 0 && !made.empty()) continue;
      const std::string name = std::string("the layer ") + graph_.layers[i].layer;
      if (again == kNoMemory || made.empty()) return no_memory(name);
      return name + ": ncnn failed with " + std::to_string(again);
    }
    return problem == kNoMemory ? no_memory("a layer")
                                : "ncnn failed with " + std::to_string(problem);
  }

  Graph graph_;
  Settings settings_;
  // Before the net and so destroyed after it: mats may live as long as the net does.
  Pools pools_;
  ncnn::Net net_;
  bool on_gpu_ = false;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> copied_{0};
};

}  // namespace ncnn_net
}  // namespace edgekit
