// What the C++ of every ACL region shares: function objects that are configured once, with one memory
// for the tensors between them, the caller's tensors used in place where no function wants room around
// them, and errors that name the layer.
#pragma once

#include <arm_compute/runtime/Allocator.h>
#include <arm_compute/runtime/BlobLifetimeManager.h>
#include <arm_compute/runtime/MemoryGroup.h>
#include <arm_compute/runtime/MemoryManagerOnDemand.h>
#include <arm_compute/runtime/NEON/NEFunctions.h>
#include <arm_compute/runtime/NEON/NEScheduler.h>
#include <arm_compute/runtime/OffsetLifetimeManager.h>
#include <arm_compute/runtime/PoolManager.h>
#include <arm_compute/runtime/Tensor.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "edgekit_program.h"

namespace edgekit {
namespace acl {

namespace arm = arm_compute;
using Info = arm::ActivationLayerInfo;

struct Settings {
  int threads;
  bool only_finite;
};

// ACL counts axes from the innermost.
inline arm::TensorShape shape_of(const Extents& extents) {
  arm::TensorShape shape;
  for (size_t i = 0; i < extents.size(); ++i)
    shape.set(i, static_cast<size_t>(extents[extents.size() - 1 - i]), false);
  return shape;
}

inline Info curve_of(const Layer& layer) {
  using Function = Info::ActivationFunction;
  if (!layer.has("curve")) return Info();
  const std::string& name = layer.word("curve");
  const std::vector<float> given = layer.numbers("curve_values");
  if (name == "relu") return Info(Function::RELU);
  if (name == "leakyrelu") return Info(Function::LEAKY_RELU, given.at(0));
  if (name == "clip") return Info(Function::LU_BOUNDED_RELU, given.at(1), given.at(0));
  if (name == "sigmoid") return Info(Function::LOGISTIC);
  if (name == "tanh") return Info(Function::TANH, 1.f, 1.f);
  if (name == "elu") return Info(Function::ELU, given.at(0));
  if (name == "abs") return Info(Function::ABS);
  if (name == "square") return Info(Function::SQUARE);
  if (name == "sqrt") return Info(Function::SQRT);
  if (name == "hard_swish" || name == "hard_swish_6") return Info(Function::HARD_SWISH);
  throw std::invalid_argument("no activation is called " + name);
}

// The library's scheduler is one for all regions, and its functions are not to be run by two threads.
inline std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

class Runner {
 public:
  Runner(const Program& program, const Settings& settings) : program_(program), settings_(settings) {
    std::lock_guard<std::mutex> lock(one_at_a_time());
    const int threads = threads_wanted(settings.threads);
    if (threads > 0) arm::Scheduler::get().set_num_threads(static_cast<unsigned>(threads));
    for (const Value& value : program_.values) {
      tensors_.emplace_back(new arm::Tensor());
      tensors_.back()->allocator()->init(
          arm::TensorInfo(shape_of(value.extents), 1, arm::DataType::F32));
    }
    for (size_t i = 0; i < program_.layers.size(); ++i)
      for_layer(program_.layers[i].name, [&] { add(static_cast<int>(i)); });
    for (const Memory* memory : {&inside_, &between_}) memory->manager->populate(allocator_, 1);
    prepare_outside();
    for (size_t i = 0; i < functions_.size(); ++i)
      for_layer(function_layers_[i], [&] { functions_[i]->prepare(); });
  }

  void run(const DLTensor* const* inputs, DLTensor* const* outputs) {
    std::lock_guard<std::mutex> lock(one_at_a_time());
    for (size_t i = 0; i < inputs_.size(); ++i) take(inputs_[i], data_of(inputs[i]));
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      if (!copied_out_[i]) import(program_.outputs[i], data_of(outputs[i]));
    {
      arm::MemoryGroupResourceScope scope(*group_);
      for (size_t i = 0; i < functions_.size(); ++i)
        for_layer(function_layers_[i], [&] { functions_[i]->run(); });
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      if (copied_out_[i]) copy_out(program_.outputs[i], data_of(outputs[i]));
  }

  // Bytes that were copied at the boundary, in all calls.
  uint64_t copied() const { return copied_; }

 private:
  struct Memory {
    std::shared_ptr<arm::MemoryManagerOnDemand> manager;

    explicit Memory(std::shared_ptr<arm::ILifetimeManager> lifetimes)
        : manager(std::make_shared<arm::MemoryManagerOnDemand>(
              std::move(lifetimes), std::make_shared<arm::PoolManager>())) {}
  };

  template <typename Action>
  static void for_layer(const std::string& name, Action action) {
    try {
      action();
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("the layer " + name + ": there is no memory for it");
    } catch (const std::exception& error) {
      throw std::runtime_error("the layer " + name + ": " + error.what());
    }
  }

  static void require(const arm::Status& status) {
    if (!status) throw std::runtime_error("ACL does not take it: " + status.error_description());
  }

  bool lies_outside(int value) const {
    if (program_.values[value].role != Value::kMade) return true;
    for (int output : program_.outputs)
      if (output == value) return true;
    return false;
  }

  // A tensor between layers has its memory from its first to its last layer.
  void add(int place) {
    const Layer& layer = program_.layers[place];
    for (int value : layer.makes)
      if (!lies_outside(value)) group_->manage(tensors_[value].get());
    configure(layer);
    for (size_t value = 0; value < tensors_.size(); ++value)
      if (!lies_outside(static_cast<int>(value)) && last_use(static_cast<int>(value)) == place)
        tensors_[value]->allocator()->allocate();
  }

  int last_use(int value) const {
    int last = -1;
    for (size_t i = 0; i < program_.layers.size(); ++i) {
      const Layer& layer = program_.layers[i];
      for (int used : layer.reads)
        if (used == value) last = static_cast<int>(i);
      for (int used : layer.makes)
        if (used == value) last = std::max(last, static_cast<int>(i));
    }
    return last;
  }

  void configure(const Layer& layer) {
    const std::string& kind = layer.kind;
    if (kind == "convolution") convolve(layer);
    else if (kind == "dense") dense(layer);
    else if (kind == "pooling") pool(layer);
    else if (kind == "curve") bend(layer);
    else if (kind == "binary") combine(layer);
    else if (kind == "softmax") add_function<arm::NESoftmaxLayer>(layer, inside_.manager, from(layer), to(layer), 1.f, 0);
    else if (kind == "concat") concatenate(layer);
    else if (kind == "view") add_plain<arm::NEReshapeLayer>(layer, from(layer), to(layer));
    else if (kind == "resize") resize(layer);
    else if (kind == "prelu") add_plain<arm::NEPReluLayer>(layer, from(layer), constant(layer, "weight"), to(layer));
    else throw std::invalid_argument("no layer is called " + kind);
  }

  arm::Tensor* at(int64_t value) const { return tensors_.at(static_cast<size_t>(value)).get(); }
  arm::Tensor* from(const Layer& layer, int place = 0) const { return at(layer.reads.at(place)); }
  arm::Tensor* to(const Layer& layer) const { return at(layer.makes.at(0)); }

  arm::Tensor* constant(const Layer& layer, const std::string& key) const {
    return layer.has(key) ? at(layer.integer(key)) : nullptr;
  }

  // What `validate` wants for what `configure` wants.
  static const arm::ITensorInfo* seen(arm::Tensor* const& tensor) {
    return tensor ? tensor->info() : nullptr;
  }
  template <typename Other>
  static const Other& seen(const Other& other) {
    return other;
  }

  template <typename Function, typename... Arguments>
  void add_plain(const Layer& layer, const Arguments&... arguments) {
    keep(layer, std::unique_ptr<Function>(new Function()), arguments...);
  }

  template <typename Function, typename... Arguments>
  void add_function(const Layer& layer, std::shared_ptr<arm::IMemoryManager> memory,
                    const Arguments&... arguments) {
    keep(layer, std::unique_ptr<Function>(new Function(std::move(memory))), arguments...);
  }

  template <typename Function, typename... Arguments>
  void keep(const Layer& layer, std::unique_ptr<Function> function, const Arguments&... arguments) {
    require(Function::validate(seen(arguments)...));
    function->configure(arguments...);
    functions_.push_back(std::move(function));
    function_layers_.push_back(layer.name);
  }

  static arm::PadStrideInfo window_of(const Layer& layer) {
    const Extents strides = layer.integers("strides"), before = layer.integers("before"),
                  after = layer.integers("after");
    const auto narrow = [](int64_t value) { return static_cast<unsigned>(value); };
    return arm::PadStrideInfo(narrow(strides[1]), narrow(strides[0]), narrow(before[1]),
                              narrow(after[1]), narrow(before[0]), narrow(after[0]),
                              arm::DimensionRoundingType::FLOOR);
  }

  void convolve(const Layer& layer) {
    const Extents dilations = layer.integers("dilations");
    const arm::Size2D dilation(static_cast<size_t>(dilations[1]), static_cast<size_t>(dilations[0]));
    arm::Tensor *weight = constant(layer, "weight"), *bias = constant(layer, "bias");
    if (layer.integer("groups") == 1) {
      add_function<arm::NEConvolutionLayer>(layer, inside_.manager, from(layer), weight, bias,
                                            to(layer), window_of(layer), arm::WeightsInfo(),
                                            dilation, curve_of(layer));
      return;
    }
    // As many groups as channels, each with as many results.
    const Extents& extents = program_.values[layer.integer("weight")].extents;
    weight->allocator()->init(arm::TensorInfo(
        shape_of({extents[0] * extents[1], extents[3], extents[4]}), 1, arm::DataType::F32));
    add_function<arm::NEDepthwiseConvolutionLayer>(
        layer, inside_.manager, from(layer), weight, bias, to(layer), window_of(layer),
        static_cast<unsigned>(extents[1]), curve_of(layer), dilation);
  }

  void dense(const Layer& layer) {
    arm::FullyConnectedLayerInfo info;
    info.transpose_weights = false;
    info.activation_info = curve_of(layer);
    keep(layer,
         std::unique_ptr<arm::NEFullyConnectedLayer>(
             new arm::NEFullyConnectedLayer(inside_.manager)),
         from(layer), constant(layer, "weight"), constant(layer, "bias"), to(layer), info);
  }

  void pool(const Layer& layer) {
    const std::string& operation = layer.word("operation");
    const Extents kernel = layer.integers("kernel");
    const arm::PoolingLayerInfo info(
        operation == "max" ? arm::PoolingType::MAX : arm::PoolingType::AVG,
        arm::Size2D(static_cast<size_t>(kernel[1]), static_cast<size_t>(kernel[0])),
        arm::DataLayout::NCHW, window_of(layer), operation == "average");
    add_plain<arm::NEPoolingLayer>(layer, from(layer), to(layer), info);
  }

  void bend(const Layer& layer) {
    const std::string& name = layer.word("curve");
    arm::Tensor *given = from(layer), *made = to(layer);
    if (name == "exp") add_plain<arm::NEExpLayer>(layer, given, made);
    else if (name == "negative") add_plain<arm::NENegLayer>(layer, given, made);
    else if (name == "log") add_plain<arm::NELogLayer>(layer, given, made);
    else add_plain<arm::NEActivationLayer>(layer, given, made, curve_of(layer));
  }

  void combine(const Layer& layer) {
    const std::string& operation = layer.word("operation");
    arm::Tensor *first = from(layer), *second = from(layer, 1), *made = to(layer);
    const arm::ConvertPolicy policy = arm::ConvertPolicy::SATURATE;
    if (operation == "add")
      add_plain<arm::NEArithmeticAddition>(layer, first, second, made, policy);
    else if (operation == "subtract")
      add_plain<arm::NEArithmeticSubtraction>(layer, first, second, made, policy);
    else if (operation == "multiply")
      add_plain<arm::NEPixelWiseMultiplication>(layer, first, second, made, 1.f, policy,
                                                arm::RoundingPolicy::TO_ZERO);
    else if (operation == "divide")
      add_plain<arm::NEElementwiseDivision>(layer, first, second, made);
    else if (operation == "maximum")
      add_plain<arm::NEElementwiseMax>(layer, first, second, made);
    else if (operation == "minimum")
      add_plain<arm::NEElementwiseMin>(layer, first, second, made);
    else throw std::invalid_argument("no operation is called " + operation);
  }

  void resize(const Layer& layer) {
    const bool nearest = layer.word("operation") == "nearest";
    const arm::ScaleKernelInfo info(
        nearest ? arm::InterpolationPolicy::NEAREST_NEIGHBOR : arm::InterpolationPolicy::BILINEAR,
        arm::BorderMode::REPLICATE);
    add_plain<arm::NEScale>(layer, from(layer), to(layer), info);
  }

  void concatenate(const Layer& layer) {
    std::vector<const arm::ITensor*> given;
    std::vector<const arm::ITensorInfo*> infos;
    for (int value : layer.reads) {
      given.push_back(at(value));
      infos.push_back(at(value)->info());
    }
    const size_t axis = program_.values[layer.makes[0]].extents.size() - 1 -
                        static_cast<size_t>(layer.integer("axis"));
    require(arm::NEConcatenateLayer::validate(infos, to(layer)->info(), axis));
    std::unique_ptr<arm::NEConcatenateLayer> function(new arm::NEConcatenateLayer());
    function->configure(given, to(layer), axis);
    functions_.push_back(std::move(function));
    function_layers_.push_back(layer.name);
  }

  // Only now is it known which tensors have to have room around them: those lie in memory of our
  // own, into and out of which values are copied.
  void prepare_outside() {
    inputs_ = program_.inputs();
    for (size_t i = 0; i < program_.values.size(); ++i) {
      const Value& value = program_.values[i];
      const bool roomy = at(i)->info()->has_padding();
      if (value.role == Value::kInput && roomy) at(i)->allocator()->allocate();
      if (value.role != Value::kConstant) continue;
      if (roomy) at(i)->allocator()->allocate();
      take(static_cast<int>(i), const_cast<float*>(value.data));
    }
    for (int output : program_.outputs) {
      copied_out_.push_back(at(output)->info()->has_padding());
      if (copied_out_.back()) at(output)->allocator()->allocate();
    }
    copied_ = 0;
  }

  void import(int value, void* data) { require(at(value)->allocator()->import_memory(data)); }

  void take(int value, void* data) {
    const Value& about = program_.values[value];
    if (settings_.only_finite && about.role == Value::kInput &&
        !all_finite(static_cast<float*>(data), static_cast<size_t>(count_of(about.extents))))
      throw std::invalid_argument(
          about.name +
          " holds NaN or infinity, with which ACL does not compute as the model says (the option "
          "non_finite lets them through)");
    if (!at(value)->info()->has_padding()) return import(value, data);
    copy(value, [&](char* row, size_t size) {
      std::memcpy(row, data, size);
      data = static_cast<char*>(data) + size;
    });
  }

  void copy_out(int value, void* data) {
    copy(value, [&](const char* row, size_t size) {
      std::memcpy(data, row, size);
      data = static_cast<char*>(data) + size;
    });
  }

  // Row by row, in the order of the caller's tensor.
  template <typename Action>
  void copy(int value, Action action) {
    arm::Tensor& tensor = *at(value);
    const arm::ITensorInfo& info = *tensor.info();
    const size_t row = info.dimension(0) * sizeof(float);
    const size_t rows = info.tensor_shape().total_size() / info.dimension(0);
    for (size_t i = 0; i < rows; ++i) {
      size_t offset = info.offset_first_element_in_bytes(), left = i;
      for (size_t axis = 1; axis < info.num_dimensions(); ++axis) {
        offset += left % info.dimension(axis) * info.strides_in_bytes()[axis];
        left /= info.dimension(axis);
      }
      action(reinterpret_cast<char*>(tensor.buffer()) + offset, row);
      copied_ += row;
    }
  }

  Program program_;
  Settings settings_;
  arm::Allocator allocator_;
  // What functions need inside, and the tensors between them.
  Memory inside_{std::make_shared<arm::BlobLifetimeManager>()};
  Memory between_{std::make_shared<arm::OffsetLifetimeManager>()};
  std::unique_ptr<arm::MemoryGroup> group_{new arm::MemoryGroup(between_.manager)};
  std::vector<std::unique_ptr<arm::Tensor>> tensors_;
  std::vector<std::unique_ptr<arm::IFunction>> functions_;
  std::vector<std::string> function_layers_;
  std::vector<int> inputs_;
  std::vector<bool> copied_out_;
  uint64_t copied_ = 0;
};

}  // namespace acl
}  // namespace edgekit
