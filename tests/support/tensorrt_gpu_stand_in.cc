// In the place of TensorRT, CUDA and the driver, for tests of what the runner asks them for: memory
// "of the GPU" is ordinary memory, the engine computes ReLU, and everything is counted. Nothing of
// NVIDIA's is in it, and nothing about TensorRT follows from it.
#include "tensorrt_gpu_stand_in.h"

#include <NvInfer.h>
#include <NvOnnxParser.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

Told told;

struct Bytes : nvinfer1::IHostMemory {
  std::string content = "engine";
  void* data() const override { return const_cast<char*>(content.data()); }
  size_t size() const override { return content.size(); }
};

struct Cache : nvinfer1::ITimingCache {
  nvinfer1::IHostMemory* serialize() const override { return new Bytes; }
};

struct Config : nvinfer1::IBuilderConfig {
  void setMemoryPoolLimit(nvinfer1::MemoryPoolType, size_t) override {}
  void setFlag(nvinfer1::BuilderFlag) override {}
  void clearFlag(nvinfer1::BuilderFlag) override {}
  void setBuilderOptimizationLevel(int32_t) override {}
  void setDefaultDeviceType(nvinfer1::DeviceType) override {}
  void setDLACore(int32_t) override {}
  void setProgressMonitor(nvinfer1::IProgressMonitor*) override {}
  nvinfer1::ITimingCache* createTimingCache(const void*, size_t) const override {
    return new Cache;
  }
  bool setTimingCache(const nvinfer1::ITimingCache&, bool) override { return true; }
  const nvinfer1::ITimingCache* getTimingCache() const override { return nullptr; }
};

struct Builder : nvinfer1::IBuilder {
  nvinfer1::INetworkDefinition* createNetworkV2(uint32_t) override {
    return new nvinfer1::INetworkDefinition;
  }
  nvinfer1::IBuilderConfig* createBuilderConfig() override { return new Config; }
  nvinfer1::IHostMemory* buildSerializedNetwork(nvinfer1::INetworkDefinition&,
                                                nvinfer1::IBuilderConfig&) override {
    return new Bytes;
  }
};

struct Context : nvinfer1::IExecutionContext {
  bool setTensorAddress(const char* name, void* memory) override {
    (std::strcmp(name, "input0") == 0 ? told.input : told.output) = memory;
    return true;
  }
  bool enqueueV3(cudaStream_t stream) override {
    told.stream = stream;
    const float* given = static_cast<const float*>(told.input);
    float* wanted = static_cast<float*>(told.output);
    for (int i = 0; i < kElements; ++i) wanted[i] = given[i] > 0 ? given[i] : 0;
    return true;
  }
};

struct Engine : nvinfer1::ICudaEngine {
  nvinfer1::IExecutionContext* createExecutionContext() override { return new Context; }
};

struct Runtime : nvinfer1::IRuntime {
  void setDLACore(int32_t) override {}
  nvinfer1::ICudaEngine* deserializeCudaEngine(const void*, size_t) override { return new Engine; }
};

struct Parser : nvonnxparser::IParser {
  bool parse(const void*, size_t) override { return true; }
  int32_t getNbErrors() const override { return 0; }
  const nvonnxparser::IParserError* getError(int32_t) const override { return nullptr; }
};

}  // namespace

extern "C" {
void* createInferBuilder_INTERNAL(void*, int32_t) { return new Builder; }
void* createInferRuntime_INTERNAL(void*, int32_t) { return new Runtime; }
int32_t getInferLibVersion() { return NV_TENSORRT_VERSION; }
void* createNvOnnxParser_INTERNAL(void*, void*, int) { return new Parser; }

const char* cudaGetErrorString(cudaError_t) { return "no error"; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 8, cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t size) {
  ++told.allocations;
  return *memory = std::malloc(size), cudaSuccess;
}
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMallocHost(void** memory, size_t size) { return cudaMalloc(memory, size); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind,
                            cudaStream_t) {
  ++told.copies;
  return std::memcpy(to, from, size), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(&told), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return ++told.waits, cudaSuccess; }

int cuInit(unsigned) { return 0; }
int cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "stand-in", static_cast<size_t>(size)), 0;
}

Told* edgekit_stand_in_told() { return &told; }
}
