// A region's program as oneDNN's primitives. Convolutions choose the layouts of their tensors,
// which are carried on from layer to layer; weights are brought into those layouts once.
#pragma once

#include <algorithm>
#include <climits>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "edgekit_program.h"

namespace edgekit {
namespace onednn {

using Desc = dnnl::memory::desc;
using Arguments = std::vector<std::pair<int, int>>;

struct Settings {
  int threads;
  bool bf16, only_finite;
};

// Memory that tensors lie in: the caller's, weights, or a piece of a context's own.
struct Buffer {
  enum Kind { kInput, kOutput, kConstant, kOwn };
  Kind kind;
  int index;          // of the input or output
  const void* data;   // of a constant
  size_t size;
  size_t offset;      // of a piece
  int first, last;    // steps that use a piece
};

// A tensor in one of its layouts.
struct Operand {
  Desc desc;
  int buffer;
};

struct Step {
  std::string layer;
  dnnl::primitive primitive;  // none where an operand is filled with a number
  Arguments arguments;        // oneDNN's number of it, and the operand
  Desc scratch;
  float filling;
};

struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Operand> operands;
  std::vector<Step> steps;
  std::vector<dnnl::memory> weights;
  size_t own_size = 0, scratch_size = 0;
  size_t copied = 0;  // of the caller's tensors
};

template <typename Action>
void for_layer(const std::string& name, Action action) {
  try {
    action();
  } catch (const dnnl::error& error) {
    throw std::runtime_error("the layer " + name + ": " +
                             (error.status == dnnl_out_of_memory ? "oneDNN has no memory for it"
                                                                 : error.what()));
  } catch (const std::bad_alloc&) {
    throw std::runtime_error("the layer " + name + ": there is no memory for it");
  }
}

inline Desc plain(const Extents& extents) {
  Extents strides(extents.size(), 1);
  for (size_t i = extents.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * extents[i];
  return Desc(extents, dnnl::memory::data_type::f32, strides);
}

inline Desc any(const Extents& extents) {
  return Desc(extents, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
}

class Planner {
 public:
  Planner(const Program& program, const Settings& settings, const dnnl::engine& engine)
      : program_(program), settings_(settings), engine_(engine), stream_(engine) {
    const size_t count = program.values.size();
    at_.assign(count, -1);
    plain_.assign(count, -1);
    home_.assign(count, -1);
    last_read_.assign(count, -1);
    int given = 0;
    for (size_t i = 0; i < count; ++i) {
      const Value& value = program.values[i];
      if (value.role == Value::kMade) continue;
      const bool input = value.role == Value::kInput;
      const int buffer = add_buffer(input ? Buffer::kInput : Buffer::kConstant, input ? given++ : 0,
                                    value.data, 0);
      at_[i] = add_operand(plain(value.extents), buffer);
    }
    note_readers();
    note_homes();
    for (now_ = 0; now_ < static_cast<int>(program.layers.size()); ++now_) {
      const Layer& layer = program.layers[now_];
      for_layer(layer.name, [&] { add_layer(layer); });
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) bring_out(static_cast<int>(i));
    stream_.wait();
    divide_own_memory();
  }

  Plan take() { return std::move(plan_); }

 private:
  void note_readers() {
    for (size_t i = 0; i < program_.layers.size(); ++i)
      for (int value : program_.layers[i].reads) last_read_[value] = static_cast<int>(i);
    for (int value : program_.outputs) last_read_[value] = INT_MAX;
  }

  // What becomes an output is computed in the caller's tensor where its layout is plain; so is
  // what an output is another view of.
  void note_homes() {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      home_[program_.outputs[i]] = add_buffer(Buffer::kOutput, static_cast<int>(i), nullptr, 0);
      outputs_.push_back(home_[program_.outputs[i]]);
    }
    for (auto layer = program_.layers.rbegin(); layer != program_.layers.rend(); ++layer) {
      if (layer->kind != "view") continue;
      const int from = layer->reads[0];
      if (program_.values[from].role == Value::kMade && home_[from] < 0)
        home_[from] = home_[layer->makes[0]];
    }
  }

  void add_layer(const Layer& layer) {
    if (layer.kind == "convolution")
      convolve<dnnl::convolution_forward>(layer, dnnl::algorithm::convolution_direct);
    else if (layer.kind == "deconvolution")
      convolve<dnnl::deconvolution_forward>(layer, dnnl::algorithm::deconvolution_direct);
    else if (layer.kind == "dense") dense(layer);
    else if (layer.kind == "matmul") multiply(layer);
    else if (layer.kind == "pooling") pool(layer);
    else if (layer.kind == "reduction") reduce(layer);
    else if (layer.kind == "curve") bend(layer);
    else if (layer.kind == "binary") combine(layer);
    else if (layer.kind == "softmax") normalise(layer, dnnl::algorithm::softmax_accurate);
    else if (layer.kind == "log_softmax") normalise(layer, dnnl::algorithm::softmax_log);
    else if (layer.kind == "layer_norm") layer_norm(layer);
    else if (layer.kind == "prelu") prelu(layer);
    else if (layer.kind == "resize") resize(layer);
    else if (layer.kind == "concat") concatenate(layer);
    else if (layer.kind == "view") view(layer);
    else if (layer.kind == "permute") permute(layer);
    else if (layer.kind == "slice") slice(layer);
    else if (layer.kind == "pad") pad(layer);
    else throw std::invalid_argument("no layer is called " + layer.kind);
  }

  template <typename Primitive>
  void convolve(const Layer& layer, dnnl::algorithm algorithm) {
    const int weight = static_cast<int>(layer.integer("weight"));
    Extents dilations = layer.integers("dilations");
    for (int64_t& dilation : dilations) --dilation;  // oneDNN counts the gaps
    const Desc from = any(extents(layer.reads[0])), kernel = any(extents(weight)),
               to = any(extents(layer.makes[0]));
    const auto kind = dnnl::prop_kind::forward_inference;
    const Extents strides = layer.integers("strides"), before = layer.integers("before"),
                  after = layer.integers("after");
    const dnnl::primitive_attr attributes = with_more(layer);
    typename Primitive::primitive_desc made;
    if (layer.has("bias"))
      made = typename Primitive::primitive_desc(engine_, kind, algorithm, from, kernel,
                                                desc_of(bias_of(layer)), to, strides, dilations,
                                                before, after, attributes);
    else
      made = typename Primitive::primitive_desc(engine_, kind, algorithm, from, kernel, to, strides,
                                                dilations, before, after, attributes);
    product<Primitive>(layer, made, weights_as(weight, desc_of(weight), made.weights_desc()));
  }

  void dense(const Layer& layer) {
    const int weight = static_cast<int>(layer.integer("weight"));
    const int64_t inner = extents(weight)[0], outer = extents(weight)[1];
    const Desc lying({outer, inner}, dnnl::memory::data_type::f32, Extents{1, outer});
    const Desc from = any(extents(layer.reads[0])), to = any(extents(layer.makes[0]));
    const auto kind = dnnl::prop_kind::forward_inference;
    const dnnl::primitive_attr attributes = with_more(layer);
    using Primitive = dnnl::inner_product_forward;
    Primitive::primitive_desc made;
    if (layer.has("bias"))
      made = Primitive::primitive_desc(engine_, kind, from, any({outer, inner}),
                                       desc_of(bias_of(layer)), to, attributes);
    else
      made = Primitive::primitive_desc(engine_, kind, from, any({outer, inner}), to, attributes);
    product<Primitive>(layer, made, weights_as(weight, lying, made.weights_desc()));
  }

  template <typename Primitive>
  void product(const Layer& layer, const typename Primitive::primitive_desc& made, int weights) {
    const int from = as(at_[layer.reads[0]], made.src_desc());
    int to = -1;
    if (layer.reads.size() > 1) {
      const int other = at_[layer.reads[1]];
      if (may_overwrite(other, from, made.dst_desc())) {
        to = at_[layer.makes[0]] = other;
      } else {
        to = result(layer.makes[0], made.dst_desc());
        reorder(other, to);
      }
    } else {
      to = result(layer.makes[0], made.dst_desc());
    }
    Arguments arguments{{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, to}};
    if (layer.has("bias")) arguments.push_back({DNNL_ARG_BIAS, at_[bias_of(layer)]});
    add_step(layer.name, Primitive(made), made.scratchpad_desc(), arguments);
  }

  // Whether a product may be added to the other tensor in place, because nothing reads that later.
  bool may_overwrite(int other, int from, const Desc& wanted) const {
    const int buffer = plan_.operands[other].buffer;
    if (plan_.buffers[buffer].kind != Buffer::kOwn || plan_.operands[other].desc != wanted ||
        plan_.operands[from].buffer == buffer)
      return false;
    for (size_t value = 0; value < at_.size(); ++value) {
      const bool lies_there = lies_in(at_[value], buffer) || lies_in(plain_[value], buffer);
      if (lies_there && last_read_[value] > now_) return false;
    }
    return true;
  }

  bool lies_in(int operand, int buffer) const {
    return operand >= 0 && plan_.operands[operand].buffer == buffer;
  }

  void multiply(const Layer& layer) {
    const int first = plain_of(layer.reads[0]), weight = layer.reads[1];
    const bool constant = program_.values[weight].role == Value::kConstant;
    const int second = constant ? -1 : plain_of(weight);
    const dnnl::matmul::primitive_desc made(
        engine_, plan_.operands[first].desc,
        constant ? any(extents(weight)) : plan_.operands[second].desc,
        any(extents(layer.makes[0])), with_more(layer));
    const int kernel =
        constant ? weights_as(weight, desc_of(weight), made.weights_desc()) : second;
    add_step(layer.name, dnnl::matmul(made), made.scratchpad_desc(),
             {{DNNL_ARG_SRC, first},
              {DNNL_ARG_WEIGHTS, kernel},
              {DNNL_ARG_DST, result(layer.makes[0], made.dst_desc())}});
  }

  void pool(const Layer& layer) {
    const std::string& operation = layer.word("operation");
    const auto algorithm = operation == "max" ? dnnl::algorithm::pooling_max
                           : operation == "average"
                               ? dnnl::algorithm::pooling_avg_exclude_padding
                               : dnnl::algorithm::pooling_avg_include_padding;
    const Extents kernel = layer.integers("kernel");
    const int from = at_[layer.reads[0]];
    simple<dnnl::pooling_forward>(
        layer, from,
        {engine_, dnnl::prop_kind::forward_inference, algorithm, plan_.operands[from].desc,
         any(extents(layer.makes[0])), layer.integers("strides"), kernel,
         Extents(kernel.size(), 0), layer.integers("before"), layer.integers("after"),
         attributes()});
  }

  void reduce(const Layer& layer) {
    const std::string& operation = layer.word("operation");
    const auto algorithm = operation == "sum"    ? dnnl::algorithm::reduction_sum
                           : operation == "mean" ? dnnl::algorithm::reduction_mean
                           : operation == "max"  ? dnnl::algorithm::reduction_max
                           : operation == "min"  ? dnnl::algorithm::reduction_min
                                                 : dnnl::algorithm::reduction_mul;
    const int from = plain_of(layer.reads[0]);
    simple<dnnl::reduction>(layer, from,
                            {engine_, algorithm, plan_.operands[from].desc,
                             plain(extents(layer.makes[0])), 0.f, 0.f, attributes()});
  }

  struct Curve {
    dnnl::algorithm algorithm;
    float alpha, beta;
  };

  static Curve curve_of(const Layer& layer) {
    using dnnl::algorithm;
    const std::string& name = layer.word("curve");
    std::vector<float> given = layer.numbers("curve_values");
    given.resize(2);
    static const std::map<std::string, Curve> fixed = {
        {"relu", {algorithm::eltwise_relu, 0, 0}},
        {"sigmoid", {algorithm::eltwise_logistic, 0, 0}},
        {"tanh", {algorithm::eltwise_tanh, 0, 0}},
        {"swish", {algorithm::eltwise_swish, 1, 0}},
        {"mish", {algorithm::eltwise_mish, 0, 0}},
        {"softplus", {algorithm::eltwise_soft_relu, 1, 0}},
        {"gelu", {algorithm::eltwise_gelu_erf, 0, 0}},
        {"gelu_tanh", {algorithm::eltwise_gelu_tanh, 0, 0}},
        {"abs", {algorithm::eltwise_abs, 0, 0}},
        {"negative", {algorithm::eltwise_linear, -1, 0}},
        {"square", {algorithm::eltwise_square, 0, 0}},
        {"sqrt", {algorithm::eltwise_sqrt, 0, 0}},
        {"rsqrt", {algorithm::eltwise_pow, 1, -0.5f}},
        {"exp", {algorithm::eltwise_exp, 0, 0}},
        {"log", {algorithm::eltwise_log, 0, 0}},
        {"round", {algorithm::eltwise_round, 0, 0}},
    };
    static const std::map<std::string, algorithm> with_values = {
        {"leakyrelu", algorithm::eltwise_relu},
        {"clip", algorithm::eltwise_clip},
        {"elu", algorithm::eltwise_elu},
        {"hard_sigmoid", algorithm::eltwise_hardsigmoid},
        {"hard_swish", algorithm::eltwise_hardswish},
        {"hard_swish_6", algorithm::eltwise_hardswish},
    };
    const auto found = fixed.find(name);
    if (found != fixed.end()) return found->second;
    return {with_values.at(name), given[0], given[1]};
  }

  void bend(const Layer& layer) {
    const Curve curve = curve_of(layer);
    const int from = at_[layer.reads[0]];
    simple<dnnl::eltwise_forward>(
        layer, from,
        {engine_, dnnl::prop_kind::forward_inference, curve.algorithm, plan_.operands[from].desc,
         any(extents(layer.makes[0])), curve.alpha, curve.beta, attributes()});
  }

  void combine(const Layer& layer) {
    static const std::map<std::string, dnnl::algorithm> operations = {
        {"add", dnnl::algorithm::binary_add},     {"subtract", dnnl::algorithm::binary_sub},
        {"multiply", dnnl::algorithm::binary_mul}, {"divide", dnnl::algorithm::binary_div},
        {"maximum", dnnl::algorithm::binary_max}, {"minimum", dnnl::algorithm::binary_min},
    };
    const int first = at_[layer.reads[0]];
    const Desc& desc = plan_.operands[first].desc;
    const bool repeated = extents(layer.reads[0]) != extents(layer.reads[1]);
    const int second = repeated ? plain_of(layer.reads[1]) : as(at_[layer.reads[1]], Desc(desc));
    const dnnl::binary::primitive_desc made(
        engine_, operations.at(layer.word("operation")), plan_.operands[first].desc,
        plan_.operands[second].desc, any(extents(layer.makes[0])), attributes());
    add_step(layer.name, dnnl::binary(made), made.scratchpad_desc(),
             {{DNNL_ARG_SRC_0, first},
              {DNNL_ARG_SRC_1, second},
              {DNNL_ARG_DST, result(layer.makes[0], made.dst_desc())}});
  }

  void normalise(const Layer& layer, dnnl::algorithm algorithm) {
    const int from = plain_of(layer.reads[0]);
    simple<dnnl::softmax_forward>(
        layer, from,
        {engine_, dnnl::prop_kind::forward_inference, algorithm, plan_.operands[from].desc,
         any(extents(layer.makes[0])), static_cast<int>(layer.integer("axis")), attributes()});
  }

  void layer_norm(const Layer& layer) {
    using dnnl::normalization_flags;
    const int from = plain_of(layer.reads[0]);
    const dnnl::layer_normalization_forward::primitive_desc made(
        engine_, dnnl::prop_kind::forward_inference, plan_.operands[from].desc,
        plan_.operands[from].desc, layer.numbers("epsilon").at(0),
        normalization_flags::use_scale | normalization_flags::use_shift, attributes());
    add_step(layer.name, dnnl::layer_normalization_forward(made), made.scratchpad_desc(),
             {{DNNL_ARG_SRC, from},
              {DNNL_ARG_SCALE, at_[layer.integer("gamma")]},
              {DNNL_ARG_SHIFT, at_[layer.integer("beta")]},
              {DNNL_ARG_DST, result(layer.makes[0], made.dst_desc())}});
  }

  void prelu(const Layer& layer) {
    const int from = at_[layer.reads[0]], weight = static_cast<int>(layer.integer("weight"));
    const dnnl::prelu_forward::primitive_desc made(
        engine_, dnnl::prop_kind::forward_inference, plan_.operands[from].desc,
        any(extents(weight)), any(extents(layer.makes[0])), attributes());
    add_step(layer.name, dnnl::prelu_forward(made), made.scratchpad_desc(),
             {{DNNL_ARG_SRC, from},
              {DNNL_ARG_WEIGHTS, weights_as(weight, desc_of(weight), made.weights_desc())},
              {DNNL_ARG_DST, result(layer.makes[0], made.dst_desc())}});
  }

  void resize(const Layer& layer) {
    const bool nearest = layer.word("operation") == "nearest";
    const int from = at_[layer.reads[0]];
    simple<dnnl::resampling_forward>(
        layer, from,
        {engine_, dnnl::prop_kind::forward_inference,
         nearest ? dnnl::algorithm::resampling_nearest : dnnl::algorithm::resampling_linear,
         plan_.operands[from].desc, any(extents(layer.makes[0])), attributes()});
  }

  void concatenate(const Layer& layer) {
    std::vector<Desc> descs;
    Arguments arguments;
    for (size_t i = 0; i < layer.reads.size(); ++i) {
      const int from = at_[layer.reads[i]];
      descs.push_back(plan_.operands[from].desc);
      arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), from});
    }
    const dnnl::concat::primitive_desc made(engine_, static_cast<int>(layer.integer("axis")), descs,
                                            attributes());
    arguments.push_back({DNNL_ARG_DST, result(layer.makes[0], made.dst_desc())});
    add_step(layer.name, dnnl::concat(made), made.scratchpad_desc(), arguments);
  }

  void view(const Layer& layer) {
    const int from = plain_of(layer.reads[0]);
    at_[layer.makes[0]] =
        add_operand(plain(extents(layer.makes[0])), plan_.operands[from].buffer);
  }

  void permute(const Layer& layer) {
    const Extents axes = layer.integers("axes");
    std::vector<int> places(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) places[axes[i]] = static_cast<int>(i);
    const Operand from = plan_.operands[plain_of(layer.reads[0])];
    const int turned = add_operand(from.desc.permute_axes(places), from.buffer);
    reorder(turned, result(layer.makes[0], plain(extents(layer.makes[0]))));
  }

  void slice(const Layer& layer) {
    const Extents starts = layer.integers("starts");
    const Operand from = plan_.operands[plain_of(layer.reads[0])];
    size_t place = 0;
    for (int made : layer.makes) {
      const size_t rank = extents(made).size();
      const Extents own(starts.begin() + place, starts.begin() + place + rank);
      const int piece = add_operand(from.desc.submemory_desc(extents(made), own), from.buffer);
      reorder(piece, result(made, plain(extents(made))));
      place += rank;
    }
  }

  void pad(const Layer& layer) {
    const int from = plain_of(layer.reads[0]), made = layer.makes[0];
    const int to = result(made, plain(extents(made)));
    plan_.steps.push_back({layer.name, dnnl::primitive(), {{DNNL_ARG_DST, to}}, Desc(),
                           layer.numbers("value").at(0)});
    const Operand whole = plan_.operands[to];
    reorder(from, add_operand(whole.desc.submemory_desc(extents(layer.reads[0]),
                                                        layer.integers("before")),
                              whole.buffer));
  }

  template <typename Primitive>
  void simple(const Layer& layer, int from, const typename Primitive::primitive_desc& made) {
    const int to = result(layer.makes[0], made.dst_desc());
    add_step(layer.name, Primitive(made), made.scratchpad_desc(),
             {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
  }

  const Extents& extents(int value) const { return program_.values[value].extents; }

  Desc desc_of(int value) const { return plan_.operands[at_[value]].desc; }

  static int bias_of(const Layer& layer) { return static_cast<int>(layer.integer("bias")); }

  dnnl::primitive_attr attributes() const {
    dnnl::primitive_attr made;
    made.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (settings_.bf16) made.set_fpmath_mode(dnnl::fpmath_mode::bf16);
    return made;
  }

  // With what a product computes along: another tensor added, an activation.
  dnnl::primitive_attr with_more(const Layer& layer) const {
    dnnl::primitive_attr made = attributes();
    dnnl::post_ops more;
    if (layer.kind != "matmul" && layer.reads.size() > 1) more.append_sum(1.f);
    if (layer.has("curve")) {
      const Curve curve = curve_of(layer);
      more.append_eltwise(curve.algorithm, curve.alpha, curve.beta);
    }
    made.set_post_ops(more);
    return made;
  }

  int add_buffer(Buffer::Kind kind, int index, const void* data, size_t size) {
    plan_.buffers.push_back({kind, index, data, size, 0, INT_MAX, -1});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  int add_operand(const Desc& desc, int buffer) {
    plan_.operands.push_back({desc, buffer});
    return static_cast<int>(plan_.operands.size()) - 1;
  }

  int add_own(const Desc& desc) {
    return add_operand(desc, add_buffer(Buffer::kOwn, 0, nullptr, desc.get_size()));
  }

  // Where a value is put: in the caller's tensor, or in a piece of our own memory.
  int result(int value, const Desc& desc) {
    const bool out = home_[value] >= 0 && desc == plain(extents(value));
    return at_[value] = out ? add_operand(desc, home_[value]) : add_own(desc);
  }

  int plain_of(int value) {
    const Desc wanted = plain(extents(value));
    if (plan_.operands[at_[value]].desc == wanted) return at_[value];
    if (plain_[value] < 0) {
      plain_[value] = home_[value] >= 0 ? add_operand(wanted, home_[value]) : add_own(wanted);
      reorder(at_[value], plain_[value]);
    }
    return plain_[value];
  }

  int as(int operand, const Desc& desc) {
    if (plan_.operands[operand].desc == desc) return operand;
    const int made = add_own(desc);
    reorder(operand, made);
    return made;
  }

  void reorder(int from, int to) {
    const dnnl::reorder::primitive_desc made(engine_, plan_.operands[from].desc, engine_,
                                             plan_.operands[to].desc, attributes());
    const auto kind = [&](int operand) {
      return plan_.buffers[plan_.operands[operand].buffer].kind;
    };
    if (kind(from) == Buffer::kInput || kind(to) == Buffer::kOutput)
      plan_.copied += made.src_desc().get_size();
    const bool inside = now_ < static_cast<int>(program_.layers.size());
    add_step(inside ? program_.layers[now_].name : "output", dnnl::reorder(made),
             made.scratchpad_desc(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  // Weights in the layout that a primitive wants, brought there now.
  int weights_as(int value, const Desc& lying, const Desc& wanted) {
    void* data = const_cast<float*>(program_.values[value].data);
    if (lying == wanted) return add_operand(wanted, plan_.operands[at_[value]].buffer);
    dnnl::memory from(lying, engine_, data), to(wanted, engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
    plan_.weights.push_back(to);
    return add_operand(wanted, add_buffer(Buffer::kConstant, 0, to.get_data_handle(), 0));
  }

  void add_step(const std::string& layer, const dnnl::primitive& primitive, const Desc& scratch,
                const Arguments& arguments) {
    plan_.steps.push_back({layer, primitive, arguments, scratch, 0.f});
  }

  // A value that was made elsewhere, or in another layout, is brought to the caller's tensor.
  void bring_out(int number) {
    const int value = program_.outputs[number];
    if (lies_in(plain_[value], outputs_[number]) || lies_in(at_[value], outputs_[number])) return;
    for_layer(program_.values[value].name, [&] {
      reorder(at_[value], add_operand(plain(extents(value)), outputs_[number]));
    });
  }

  // The largest piece first, each at the lowest place that is free as long as it is used.
  void divide_own_memory() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      plan_.scratch_size = std::max(plan_.scratch_size, rounded(scratch_size(step)));
      for (const auto& argument : step.arguments) {
        Buffer& buffer = plan_.buffers[plan_.operands[argument.second].buffer];
        buffer.first = std::min(buffer.first, static_cast<int>(i));
        buffer.last = std::max(buffer.last, static_cast<int>(i));
      }
    }
    std::vector<Buffer*> waiting, placed;
    for (Buffer& buffer : plan_.buffers)
      if (buffer.kind == Buffer::kOwn) waiting.push_back(&buffer);
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const Buffer* a, const Buffer* b) { return a->size > b->size; });
    for (Buffer* buffer : waiting) {
      for (const Buffer* other : placed) {  // sorted by offset
        if (other->first > buffer->last || other->last < buffer->first) continue;
        if (other->offset >= buffer->offset + rounded(buffer->size)) break;
        buffer->offset = std::max(buffer->offset, other->offset + rounded(other->size));
      }
      placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                     [](const Buffer* a, const Buffer* b) {
                                       return a->offset < b->offset;
                                     }),
                    buffer);
      plan_.own_size = std::max(plan_.own_size, buffer->offset + rounded(buffer->size));
    }
  }

  static size_t scratch_size(const Step& step) {
    return step.primitive ? step.scratch.get_size() : 0;
  }

  static size_t rounded(size_t size) { return (size + 63) / 64 * 64; }

  const Program& program_;
  const Settings& settings_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Plan plan_;
  std::vector<int> at_;         // by value: its operand
  std::vector<int> plain_;      // the same in the plain layout, where that is another
  std::vector<int> home_;       // by value: the output's buffer that it may be computed in
  std::vector<int> last_read_;  // by value: the layer
  std::vector<int> outputs_;    // buffers
  int now_ = 0;
};

}  // namespace onednn
}  // namespace edgekit
