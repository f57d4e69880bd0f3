// A stub of edgekit's tests, not NVIDIA's: see NvInferVersion.h beside it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "NvInferVersion.h"
#include "cuda_runtime_api.h"

namespace nvinfer1 {

enum class BuilderFlag { kFP16, kINT8, kTF32, kGPU_FALLBACK };
enum class DeviceType { kGPU, kDLA };
enum class MemoryPoolType { kWORKSPACE };

struct Object {
  virtual ~Object() = default;
};

struct ILogger {
  enum class Severity { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
  virtual void log(Severity severity, const char* text) noexcept = 0;
  virtual ~ILogger() = default;
};

struct IProgressMonitor {
  virtual void phaseStart(const char* phase, const char* parent, int32_t steps) noexcept = 0;
  virtual bool stepComplete(const char* phase, int32_t step) noexcept = 0;
  virtual void phaseFinish(const char* phase) noexcept = 0;
  virtual ~IProgressMonitor() = default;
};

struct IHostMemory : Object {
  virtual void* data() const = 0;
  virtual size_t size() const = 0;
};

struct ITimingCache : Object {
  virtual IHostMemory* serialize() const = 0;
};

struct INetworkDefinition : Object {};

struct IBuilderConfig : Object {
  virtual void setMemoryPoolLimit(MemoryPoolType pool, size_t bytes) = 0;
  virtual void setFlag(BuilderFlag flag) = 0;
  virtual void clearFlag(BuilderFlag flag) = 0;
  virtual void setBuilderOptimizationLevel(int32_t level) = 0;
  virtual void setDefaultDeviceType(DeviceType type) = 0;
  virtual void setDLACore(int32_t core) = 0;
  virtual void setProgressMonitor(IProgressMonitor* monitor) = 0;
  virtual ITimingCache* createTimingCache(const void* bytes, size_t size) const = 0;
  virtual bool setTimingCache(const ITimingCache& cache, bool mismatch) = 0;
  virtual const ITimingCache* getTimingCache() const = 0;
};

struct IBuilder : Object {
  virtual INetworkDefinition* createNetworkV2(uint32_t flags) = 0;
  virtual IBuilderConfig* createBuilderConfig() = 0;
  virtual IHostMemory* buildSerializedNetwork(INetworkDefinition& network,
                                              IBuilderConfig& config) = 0;
};

struct IExecutionContext : Object {
  virtual bool setTensorAddress(const char* name, void* memory) = 0;
  virtual bool enqueueV3(cudaStream_t stream) = 0;
};

struct ICudaEngine : Object {
  virtual IExecutionContext* createExecutionContext() = 0;
};

struct IRuntime : Object {
  virtual void setDLACore(int32_t core) = 0;
  virtual ICudaEngine* deserializeCudaEngine(const void* bytes, size_t size) = 0;
};

}  // namespace nvinfer1

extern "C" void* createInferBuilder_INTERNAL(void* logger, int32_t version);
extern "C" void* createInferRuntime_INTERNAL(void* logger, int32_t version);
extern "C" int32_t getInferLibVersion();
