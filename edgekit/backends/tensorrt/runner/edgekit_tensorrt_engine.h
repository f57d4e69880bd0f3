// A region in TensorRT: its engine, built from the embedded ONNX or taken from the cache, and the
// memory through which tensors go to the GPU and back.
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
        sizes_(region.bytes, region.bytes + region.tensors),
        longer_(region.longer, region.longer + region.tensors),
        bound_(region.tensors, nullptr) {
    if (!context_) maker_.fail("make room for the engine");
    nvidia_.check(nvidia_.create_stream(&stream_, cudaStreamNonBlocking), "make a stream");
  }

  OpenedRegion(const OpenedRegion&) = delete;
  OpenedRegion& operator=(const OpenedRegion&) = delete;
  ~OpenedRegion() {
    if (unfinished_) nvidia_.synchronize(last_);  // what it uses goes next
    nvidia_.destroy_stream(stream_);
  }

  // Tensors in the CPU's memory.
  void run(const void* const* inputs, void* const* outputs) {
    std::lock_guard<std::mutex> lock(running_);
    maker_.forget_errors();
    const Staging<GpuMemory>& memory = staging();
    for (size_t i = 0; i < memory.count(); ++i) bind(i, memory[i].device);
    for (size_t i = 0; i < inputs_; ++i) {
      std::memcpy(memory[i].host, inputs[i], memory[i].size);
      move(memory[i].device, memory[i].host, memory[i].size, cudaMemcpyHostToDevice, stream_);
    }
    enqueue(stream_);
    for (size_t i = inputs_; i < memory.count(); ++i)
      move(memory[i].host, memory[i].device, memory[i].size / (longer_[i] ? 2 : 1),
           cudaMemcpyDeviceToHost, stream_);
    finish(stream_);
    for (size_t i = inputs_; i < memory.count(); ++i) {
      if (longer_[i]) {
        lengthen(memory[i].host, outputs[i - inputs_], memory[i].size);
      } else {
        std::memcpy(outputs[i - inputs_], memory[i].host, memory[i].size);
      }
    }
  }

  // Tensors in the GPU's memory: the engine reads and writes them where they are. Nothing is copied
  // and nothing waited for, but where integers have to become longer.
  void run_there(const void* const* inputs, void* const* outputs, cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(running_);
    maker_.forget_errors();
    for (size_t i = 0; i < inputs_; ++i) bind(i, const_cast<void*>(inputs[i]));
    for (size_t i = inputs_; i < sizes_.size(); ++i)
      bind(i, longer_[i] ? staging()[i].device : outputs[i - inputs_]);
    enqueue(stream);
    for (size_t i = inputs_; i < sizes_.size(); ++i)
      if (longer_[i]) lengthen_there(i, outputs[i - inputs_], stream);
  }

 private:
  const Nvidia& nvidia_;
  const EngineKey key_;
  Maker maker_;
  Maker::Engine engine_;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  const size_t inputs_;
  const std::vector<size_t> sizes_;
  const std::vector<unsigned char> longer_;
  std::vector<void*> bound_;
  std::unique_ptr<Staging<GpuMemory>> memory_;  // only for who needs it
  cudaStream_t stream_ = nullptr;
  cudaStream_t last_ = nullptr;
  bool unfinished_ = false;
  std::mutex running_;

  const Staging<GpuMemory>& staging() {
    if (!memory_) memory_ = std::make_unique<Staging<GpuMemory>>(sizes_);
    return *memory_;
  }

  void bind(size_t place, void* memory) {
    if (bound_[place] == memory && memory != nullptr) return;
    if (!context_->setTensorAddress(name_of(place).c_str(), memory))
      maker_.fail("bind " + name_of(place));
    bound_[place] = memory;
  }

  // An engine's context works on one stream at a time.
  void enqueue(cudaStream_t stream) {
    if (unfinished_ && last_ != stream) finish(last_);
    if (!context_->enqueueV3(stream)) maker_.fail("run the engine");
    last_ = stream;
    unfinished_ = true;
  }

  void finish(cudaStream_t stream) {
    nvidia_.check(nvidia_.synchronize(stream), "finish the engine's work");
    unfinished_ = false;
  }

  void lengthen_there(size_t place, void* output, cudaStream_t stream) {
    const Staging<GpuMemory>::Buffer& buffer = staging()[place];
    std::vector<char> longer(buffer.size);
    move(buffer.host, buffer.device, buffer.size / 2, cudaMemcpyDeviceToHost, stream);
    finish(stream);
    lengthen(buffer.host, longer.data(), buffer.size);
    move(output, longer.data(), buffer.size, cudaMemcpyHostToDevice, stream);
    finish(stream);
  }

  std::string name_of(size_t place) const {
    return place < inputs_ ? "input" + std::to_string(place)
                           : "output" + std::to_string(place - inputs_);
  }

  void move(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
    nvidia_.check(nvidia_.copy(to, from, size, kind, stream), "copy a tensor");
  }
};

}  // namespace tensorrt
}  // namespace edgekit
