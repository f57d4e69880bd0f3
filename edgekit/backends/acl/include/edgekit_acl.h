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

#include "edgekit_acl_words.h"
#include "edgekit_program.h"

namespace edgekit {
namespace acl {

struct Settings {
  int threads;
  bool only_finite;
};

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
      tensors_.back()->allocator()->init(floats_of(value.extents));
    }
    for (size_t i = 0; i < program_.layers.size(); ++i)
      for_layer(program_.layers[i].name, [&] { add(static_cast<int>(i)); });
    find_room();
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
    ++calls_;
  }

  // Bytes of inputs and outputs that were copied, on average.
  uint64_t copied_in_a_call() const {
    std::lock_guard<std::mutex> lock(one_at_a_time());
    return calls_ ? copied_ / calls_ : 0;
  }

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

  // For what functions need inside and for what lies between them, all of it at once.
  void find_room() {
    try {
      for (const Memory* memory : {&inside_, &between_}) memory->manager->populate(allocator_, 1);
    } catch (const std::bad_alloc&) {
      throw std::runtime_error("there is no memory for what lies between its layers, " +
                               program_.layers[0].name + " and on");
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
    else if (kind == "deconvolution") by_groups(layer, &Runner::deconvolve_group);
    else if (kind == "stored_convolution") convolve_stored(layer);
    else if (kind == "stored_dense") dense_stored(layer);
    else if (kind == "dense") dense(layer);
    else if (kind == "pooling") pool(layer);
    else if (kind == "curve") bend(layer);
    else if (kind == "binary") combine(layer);
    else if (kind == "softmax") add_function<arm::NESoftmaxLayer>(layer, inside_.manager, from(layer), to(layer), 1.f, 0);
    else if (kind == "concat") concatenate(layer);
    else if (kind == "slice") slice(layer);
    else if (kind == "pad") pad(layer);
    else if (kind == "permute") permute(layer);
    else if (kind == "reduction") reduce(layer);
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

  static arm::Size2D dilation_of(const Layer& layer) {
    const Extents dilations = layer.integers("dilations");
    return arm::Size2D(static_cast<size_t>(dilations[1]), static_cast<size_t>(dilations[0]));
  }

  void convolve(const Layer& layer) {
    const Extents& extents = program_.values[layer.integer("weight")].extents;
    const bool in_groups = layer.integer("groups") > 1;
    if (!in_groups || extents[2] > 1) return by_groups(layer, &Runner::convolve_group);
    // As many groups as channels, each with as many results.
    arm::Tensor *weight = constant(layer, "weight"), *bias = constant(layer, "bias");
    weight->allocator()->init(floats_of({extents[0] * extents[1], extents[3], extents[4]}));
    add_function<arm::NEDepthwiseConvolutionLayer>(
        layer, inside_.manager, from(layer), weight, bias, to(layer), window_of(layer),
        static_cast<unsigned>(extents[1]), curve_of(layer), dilation_of(layer));
  }

  // One group's tensors; `bias` may be none.
  struct Group {
    arm::Tensor *given, *weight, *bias, *made;
  };

  void convolve_group(const Layer& layer, const Group& group) {
    add_function<arm::NEConvolutionLayer>(layer, inside_.manager, group.given, group.weight,
                                          group.bias, group.made, window_of(layer),
                                          arm::WeightsInfo(), dilation_of(layer), curve_of(layer));
  }

  void deconvolve_group(const Layer& layer, const Group& group) {
    const bool bent = layer.has("curve");
    arm::Tensor* made = bent ? between(*group.made->info()) : group.made;
    add_function<arm::NEDeconvolutionLayer>(layer, inside_.manager, group.given, group.weight,
                                            group.bias, made, window_of(layer));
    if (!bent) return;
    add_plain<arm::NEActivationLayer>(layer, made, group.made, curve_of(layer));
    made->allocator()->allocate();
  }

  // ACL has no groups of several channels: each is cut out and computed by itself.
  void by_groups(const Layer& layer, void (Runner::*add)(const Layer&, const Group&)) {
    arm::Tensor *weight = constant(layer, "weight"), *bias = constant(layer, "bias");
    const int64_t groups = layer.integer("groups");
    if (groups == 1) return (this->*add)(layer, {from(layer), weight, bias, to(layer)});
    Extents given = program_.values[layer.reads.at(0)].extents;
    Extents made = program_.values[layer.makes.at(0)].extents;
    Extents kernel = program_.values[layer.integer("weight")].extents;
    kernel.erase(kernel.begin());
    given[1] /= groups;
    made[1] /= groups;
    std::vector<const arm::ITensor*> parts;
    std::vector<arm::Tensor*> own;
    for (int64_t i = 0; i < groups; ++i) {
      arm::Tensor* cut = between(floats_of(given));
      const auto ends = piece_of({0, i * given[1], 0, 0}, given);
      add_plain<arm::NESlice>(layer, from(layer), cut, ends.first, ends.second);
      own.push_back(between(floats_of(made)));
      parts.push_back(own.back());
      (this->*add)(layer, {cut, part_of(layer.integer("weight"), i, kernel),
                           bias ? part_of(layer.integer("bias"), i, {made[1]}) : nullptr,
                           own.back()});
      cut->allocator()->allocate();
    }
    join(layer, parts, 2);
    for (arm::Tensor* one : own) one->allocator()->allocate();
  }

  // A tensor between the functions of one layer: `allocate` it after the last of them.
  arm::Tensor* between(const arm::ITensorInfo& like) {
    extra_.emplace_back(new arm::Tensor());
    extra_.back()->allocator()->init(
        arm::TensorInfo(like.tensor_shape(), 1, arm::DataType::F32));
    group_->manage(extra_.back().get());
    return extra_.back().get();
  }

  // The i-th of a constant's equal parts.
  arm::Tensor* part_of(int64_t value, int64_t i, const Extents& extents) {
    extra_.emplace_back(new arm::Tensor());
    extra_.back()->allocator()->init(floats_of(extents));
    parts_.push_back({extra_.back().get(), program_.values[value].data + i * count_of(extents)});
    return extra_.back().get();
  }

  // Both ends of a layer that computes in stored integers. What an earlier layer made is known.
  void store(const Layer& layer) {
    for (const char* end : {"input", "output"}) {
      const int value = *end == 'i' ? layer.reads.at(0) : layer.makes.at(0);
      arm::Tensor* tensor = at(value);
      if (tensor->info()->data_type() == stored_type(layer)) continue;
      const std::string name = end;
      const int zero_point = static_cast<int>(layer.integer(name + "_zero"));
      tensor->allocator()->init(stored_of(layer, program_.values[value].extents,
                                          stored_type(layer),
                                          {layer.numbers(name + "_scale").at(0), zero_point}));
    }
    const int64_t weight = layer.integer("weight"), bias = layer.integer("bias");
    const Value& scales = program_.values[layer.integer("scales")];
    at(weight)->allocator()->init(
        weights_of(layer, program_.values[weight].extents,
                   {scales.data, scales.data + count_of(scales.extents)}));
    at(bias)->allocator()->init(
        arm::TensorInfo(shape_of(program_.values[bias].extents), 1, arm::DataType::S32));
  }

  static Info bounds_of(const Layer& layer) {
    if (!layer.has("bounds")) return Info();
    const std::vector<float> bounds = layer.numbers("bounds");
    return Info(Info::ActivationFunction::LU_BOUNDED_RELU, bounds.at(1), bounds.at(0));
  }

  void convolve_stored(const Layer& layer) {
    store(layer);
    arm::Tensor *weight = constant(layer, "weight"), *bias = constant(layer, "bias");
    if (layer.integer("groups") == 1)
      add_function<arm::NEConvolutionLayer>(layer, inside_.manager, from(layer), weight, bias,
                                            to(layer), window_of(layer), arm::WeightsInfo(),
                                            dilation_of(layer), bounds_of(layer));
    else
      add_function<arm::NEDepthwiseConvolutionLayer>(layer, inside_.manager, from(layer), weight,
                                                     bias, to(layer), window_of(layer), 1u,
                                                     bounds_of(layer), dilation_of(layer));
  }

  void dense_stored(const Layer& layer) {
    store(layer);
    add_function<arm::NEFullyConnectedLayer>(layer, inside_.manager, from(layer),
                                             constant(layer, "weight"), constant(layer, "bias"),
                                             to(layer), arm::FullyConnectedLayerInfo());
    // By itself, where it is: along with the product 20.08 misreads bounds that are stored as
    // negative numbers.
    if (layer.has("bounds"))
      add_plain<arm::NEActivationLayer>(layer, to(layer), static_cast<arm::Tensor*>(nullptr),
                                        bounds_of(layer));
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
    for (int value : layer.reads) given.push_back(at(value));
    const size_t rank = program_.values[layer.makes[0]].extents.size();
    join(layer, given, rank - 1 - static_cast<size_t>(layer.integer("axis")));
  }

  void join(const Layer& layer, const std::vector<const arm::ITensor*>& given, size_t axis) {
    std::vector<const arm::ITensorInfo*> infos;
    for (const arm::ITensor* one : given) infos.push_back(one->info());
    require(arm::NEConcatenateLayer::validate(infos, to(layer)->info(), axis));
    std::unique_ptr<arm::NEConcatenateLayer> function(new arm::NEConcatenateLayer());
    function->configure(given, to(layer), axis);
    functions_.push_back(std::move(function));
    function_layers_.push_back(layer.name);
  }

  void slice(const Layer& layer) {
    const Extents starts = layer.integers("starts");
    const size_t rank = starts.size() / layer.makes.size();
    for (size_t i = 0; i < layer.makes.size(); ++i) {
      const auto first = starts.begin() + static_cast<std::ptrdiff_t>(i * rank);
      const auto ends = piece_of({first, first + static_cast<std::ptrdiff_t>(rank)},
                                 program_.values[layer.makes[i]].extents);
      add_plain<arm::NESlice>(layer, from(layer), at(layer.makes[i]), ends.first, ends.second);
    }
  }

  void pad(const Layer& layer) {
    const Extents& given = program_.values[layer.reads[0]].extents;
    const Extents& made = program_.values[layer.makes[0]].extents;
    const Extents before = layer.integers("before");
    arm::PaddingList widths;
    for (size_t axis = given.size(); axis-- > 0;)
      widths.emplace_back(static_cast<uint32_t>(before[axis]),
                          static_cast<uint32_t>(made[axis] - given[axis] - before[axis]));
    add_plain<arm::NEPadLayer>(layer, from(layer), to(layer), widths,
                               arm::PixelValue(layer.numbers("value").at(0)));
  }

  void permute(const Layer& layer) {
    const Extents axes = layer.integers("axes");
    arm::PermutationVector order;
    for (size_t i = 0; i < axes.size(); ++i)
      order.set(i, static_cast<unsigned>(axes.size() - 1 - axes[axes.size() - 1 - i]));
    add_plain<arm::NEPermute>(layer, from(layer), to(layer), order);
  }

  // One axis after the other.
  void reduce(const Layer& layer) {
    const arm::ReductionOperation operation = reduction_of(layer.word("operation"));
    Extents left = program_.values[layer.reads[0]].extents;
    const Extents& made = program_.values[layer.makes[0]].extents;
    arm::Tensor* given = from(layer);
    for (size_t axis = 0; axis < left.size(); ++axis) {
      if (left[axis] == made[axis]) continue;
      left[axis] = 1;
      arm::Tensor* result = left == made ? to(layer) : between(floats_of(left));
      add_function<arm::NEReductionOperation>(layer, inside_.manager, given, result,
                                              static_cast<unsigned>(left.size() - 1 - axis),
                                              operation, true);
      if (given != from(layer)) given->allocator()->allocate();
      given = result;
    }
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
    for (const Part& part : parts_) {
      if (part.tensor->info()->has_padding()) part.tensor->allocator()->allocate();
      fill(*part.tensor, const_cast<float*>(part.data));
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
    if (settings_.only_finite && about.role == Value::kInput && about.width == sizeof(float) &&
        !all_finite(static_cast<float*>(data), static_cast<size_t>(count_of(about.extents))))
      throw std::invalid_argument(
          about.name +
          " holds NaN or infinity, with which ACL does not compute as the model says (the option "
          "non_finite lets them through)");
    fill(*at(value), data);
  }

  void fill(arm::Tensor& tensor, void* data) {
    if (!tensor.info()->has_padding()) return require(tensor.allocator()->import_memory(data));
    copy(tensor, [&](char* row, size_t size) {
      std::memcpy(row, data, size);
      data = static_cast<char*>(data) + size;
    });
  }

  void copy_out(int value, void* data) {
    copy(*at(value), [&](const char* row, size_t size) {
      std::memcpy(data, row, size);
      data = static_cast<char*>(data) + size;
    });
  }

  // Row by row, in the order of the caller's tensor.
  template <typename Action>
  void copy(arm::Tensor& tensor, Action action) {
    const arm::ITensorInfo& info = *tensor.info();
    const size_t row = info.dimension(0) * info.element_size();
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

  struct Part {
    arm::Tensor* tensor;
    const float* data;
  };

  Program program_;
  Settings settings_;
  arm::Allocator allocator_;
  // What functions need inside, and the tensors between them.
  Memory inside_{std::make_shared<arm::BlobLifetimeManager>()};
  Memory between_{std::make_shared<arm::OffsetLifetimeManager>()};
  std::unique_ptr<arm::MemoryGroup> group_{new arm::MemoryGroup(between_.manager)};
  std::vector<std::unique_ptr<arm::Tensor>> tensors_;
  // Between the functions of one layer, and pieces of constants.
  std::vector<std::unique_ptr<arm::Tensor>> extra_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<arm::IFunction>> functions_;
  std::vector<std::string> function_layers_;
  std::vector<int> inputs_;
  std::vector<bool> copied_out_;
  uint64_t copied_ = 0, calls_ = 0;
};

}  // namespace acl
}  // namespace edgekit
