// A region in TensorRT: its engine, made of the embedded ONNX when it is opened or taken from the
// cache, and the memory through which tensors go there and back.
#pragma once

#include <cstring>
#include <mutex>

#include "edgekit_staging.h"
#include "edgekit_tensorrt_build.h"

namespace edgekit {
namespace tensorrt {

class OpenedRegion {
 public:
  explicit OpenedRegion(const EdgekitTensorrtRegion& region)
      : nvidia_(Nvidia::here()),
        key_(key_of(region)),
        maker_(key_, cache_folder(), region.model, region.model_size,
               [tell = region.tell](const std::string& text, bool moving) {
                 tell(text.c_str(), moving);
               }),
        engine_(cached_engine<Maker::Engine>(key_, cache_folder(), maker_)),
        context_(engine_->createExecutionContext()),
        inputs_(region.inputs),
        memory_({region.bytes, region.bytes + region.tensors}),
        longer_(region.longer, region.longer + region.tensors) {
    if (!context_) maker_.fail("make room for the engine");
    for (size_t i = 0; i < memory_.count(); ++i)
      if (!context_->setTensorAddress(name_of(i).c_str(), memory_[i].device))
        maker_.fail("bind " + name_of(i));
    nvidia_.check(nvidia_.create_stream(&stream_, cudaStreamNonBlocking), "make a stream");
  }

  OpenedRegion(const OpenedRegion&) = delete;
  OpenedRegion& operator=(const OpenedRegion&) = delete;
  ~OpenedRegion() { nvidia_.destroy_stream(stream_); }

  void run(const void* const* inputs, void* const* outputs) {
    std::lock_guard<std::mutex> lock(running_);
    maker_.forget_errors();
    for (size_t i = 0; i < inputs_; ++i) {
      std::memcpy(memory_[i].host, inputs[i], memory_[i].size);
      move(memory_[i].device, memory_[i].host, memory_[i].size, cudaMemcpyHostToDevice);
    }
    if (!context_->enqueueV3(stream_)) maker_.fail("run the engine");
    for (size_t i = inputs_; i < memory_.count(); ++i)
      move(memory_[i].host, memory_[i].device, memory_[i].size / (longer_[i] ? 2 : 1),
           cudaMemcpyDeviceToHost);
    nvidia_.check(nvidia_.synchronize(stream_), "finish the engine's work");
    for (size_t i = inputs_; i < memory_.count(); ++i) {
      if (longer_[i]) {
        lengthen(memory_[i].host, outputs[i - inputs_], memory_[i].size);
      } else {
        std::memcpy(outputs[i - inputs_], memory_[i].host, memory_[i].size);
      }
    }
  }

 private:
  const Nvidia& nvidia_;
  const EngineKey key_;
  Maker maker_;
  Maker::Engine engine_;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  const size_t inputs_;
  Staging<GpuMemory> memory_;
  const std::vector<unsigned char> longer_;
  cudaStream_t stream_ = nullptr;
  std::mutex running_;

  std::string name_of(size_t place) const {
    return place < inputs_ ? "input" + std::to_string(place)
                           : "output" + std::to_string(place - inputs_);
  }

  void move(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    nvidia_.check(nvidia_.copy(to, from, size, kind, stream_), "copy a tensor");
  }
};

}  // namespace tensorrt
}  // namespace edgekit
