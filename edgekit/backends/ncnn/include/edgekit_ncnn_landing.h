// Results that are computed in the caller's tensor: the layer that makes one gets that memory, and
// following layers that work in place keep it.
#pragma once

#include <ncnn/allocator.h>
#include <ncnn/layer.h>
#include <ncnn/layer_type.h>
#include <ncnn/mat.h>
#include <ncnn/net.h>

#include <mutex>
#include <vector>

namespace edgekit {
namespace ncnn_net {

// The memory of one call: a pool, and the caller's tensors, which are not freed.
class CallMemory : public ncnn::Allocator {
 public:
  explicit CallMemory(ncnn::Allocator& pool, size_t results = 0) : pool_(pool), results_(results) {}

  void* fastMalloc(size_t size) override { return pool_.fastMalloc(size); }

  void fastFree(void* memory) override {
    for (const Result& result : results_)
      if (result.data == memory) return;
    pool_.fastFree(memory);
  }

  void give(size_t output, void* data) { results_[output] = {data, 1}; }

  // Its data; none where the caller gave none.
  void* data_for(size_t output) const {
    return output < results_.size() ? results_[output].data : nullptr;
  }

  // The counter of its users: ncnn keeps this number behind memory of its own.
  int* users_of(size_t output) { return &results_[output].users; }

 private:
  struct Result {
    void* data = nullptr;
    int users = 0;
  };
  ncnn::Allocator& pool_;
  std::vector<Result> results_;
};

// A layer of a net, in its place. Only the layer knows how it packs what it makes, so that the form
// of one call's result is offered in the next; what it does not take, it allocates as ever.
class Landing : public ncnn::Layer {
 public:
  // `made` says what the result will be, as far as that is known.
  Landing(ncnn::Layer* layer, size_t top, size_t output, const ncnn::Mat& made)
      : ncnn::Layer(*layer), layer_(layer), top_(top), output_(output), bytes_(bytes_of(made)) {
    remember(made);
  }
  ~Landing() override { delete layer_; }

  int destroy_pipeline(const ncnn::Option& option) override {
    return layer_->destroy_pipeline(option);
  }

  int forward(const ncnn::Mat& given, ncnn::Mat& made, const ncnn::Option& option) const override {
    offer(made, option);
    const int problem = layer_->forward(given, made, option);
    if (problem == 0) remember(made);
    return problem;
  }

  int forward(const std::vector<ncnn::Mat>& given, std::vector<ncnn::Mat>& made,
              const ncnn::Option& option) const override {
    offer(made[top_], option);
    const int problem = layer_->forward(given, made, option);
    if (problem == 0) remember(made[top_]);
    return problem;
  }

 private:
  struct Form {
    int dims, w, h, d, c, elempack;
  };

  static size_t bytes_of(const ncnn::Mat& mat) {
    return static_cast<size_t>(mat.w) * mat.h * mat.d * mat.c * mat.elemsize;
  }

  void remember(const ncnn::Mat& made) const {
    std::lock_guard<std::mutex> lock(learning_);
    form_ = {made.dims, made.w, made.h, made.d, made.c, made.elempack};
  }

  Form known() const {
    std::lock_guard<std::mutex> lock(learning_);
    return form_;
  }

  static ncnn::Mat at(void* data, const Form& form, ncnn::Allocator* allocator) {
    const size_t size = 4u * form.elempack;
    switch (form.dims) {
      case 1: return ncnn::Mat(form.w, data, size, form.elempack, allocator);
      case 2: return ncnn::Mat(form.w, form.h, data, size, form.elempack, allocator);
      case 3: return ncnn::Mat(form.w, form.h, form.c, data, size, form.elempack, allocator);
      default:
        return ncnn::Mat(form.w, form.h, form.d, form.c, data, size, form.elempack, allocator);
    }
  }

  void offer(ncnn::Mat& made, const ncnn::Option& option) const {
    CallMemory& memory = *static_cast<CallMemory*>(option.blob_allocator);
    void* data = memory.data_for(output_);
    const Form form = known();
    // A row is the same in memory however it is packed; what else is packed lies in another order.
    if (data == nullptr || (form.elempack != 1 && form.dims != 1)) return;
    ncnn::Mat place = at(data, form, &memory);
    const size_t plane = static_cast<size_t>(form.w) * form.h * form.d;
    if (bytes_of(place) != bytes_ || (form.dims > 2 && place.cstep != plane)) return;
    place.refcount = memory.users_of(output_);
    made = place;
    *place.refcount = 1;
    place.refcount = nullptr;
  }

  ncnn::Layer* layer_;
  size_t top_, output_, bytes_;
  mutable std::mutex learning_;
  mutable Form form_;
};

// Give a result's memory to the layer that first writes it, before layers that work in place. Stop
// at a value with several readers, which would see it overwritten.
inline void land(ncnn::Net& net, int blob, size_t output, const ncnn::Mat& made) {
  for (bool first = true;; first = false) {
    const int producer = net.blobs()[blob].producer;
    ncnn::Layer*& layer = net.mutable_layers()[producer];
    if (layer->bottoms.empty()) return;
    const bool shares = layer->typeindex == ncnn::LayerType::Split;
    const bool hands_on = layer->typeindex == ncnn::LayerType::Reshape ||
                          (layer->support_inplace && layer->one_blob_only);
    if (shares && !first) return;
    if (!shares && !hands_on) {
      size_t top = 0;
      while (layer->tops[top] != blob) ++top;
      layer = new Landing(layer, top, output, made);
      return;
    }
    blob = layer->bottoms[0];
  }
}

}  // namespace ncnn_net
}  // namespace edgekit
