// From ONNX to an engine, by TensorRT 8.5 to 11.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "edgekit_engine_cache.h"
#include "edgekit_tensorrt_api.h"
#include "edgekit_tensorrt_part.h"

namespace edgekit {
namespace tensorrt {

// Report to the application; `moving` texts are repeated progress.
using Tell = std::function<void(const std::string& text, bool moving)>;

inline double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

template <typename Object>
std::unique_ptr<Object> owned(void* made) {
  return std::unique_ptr<Object>(static_cast<Object*>(made));
}

inline EngineKey key_of(const EdgekitTensorrtRegion& region) {
  const Nvidia& nvidia = Nvidia::here();
  int device = 0;
  EngineKey key;
  key.region = region.name;
  key.model_hash = hash_of(region.model, region.model_size);
  key.tensorrt = nvidia.version();
  nvidia.check(nvidia.get_device(&device), "find a GPU");
  nvidia.check(nvidia.attribute(&key.sm_major, cudaDevAttrComputeCapabilityMajor, device),
               "ask the GPU what it is");
  nvidia.check(nvidia.attribute(&key.sm_minor, cudaDevAttrComputeCapabilityMinor, device),
               "ask the GPU what it is");
  key.gpu = nvidia.gpu_name(device);
  key.precision = region.precision;
  key.workspace_bytes = region.workspace_bytes;
  key.dla_core = region.dla_core;
  key.builder_level = region.builder_level;
  return key;
}

class Maker {
 public:
  using Engine = std::unique_ptr<nvinfer1::ICudaEngine>;

  Maker(const EngineKey& key, const std::string& folder, const void* model, size_t size, Tell tell)
      : key_(key),
        folder_(folder),
        model_(model),
        size_(size),
        tell_(std::move(tell)),
        runtime_(owned<nvinfer1::IRuntime>(
            Nvidia::here().create_runtime(logger(), NV_TENSORRT_VERSION))) {
    if (!runtime_) fail("start");
    if (key_.dla_core >= 0) runtime_->setDLACore(key_.dla_core);
  }

  [[noreturn]] void fail(const std::string& doing) const {
    throw std::runtime_error(explained(doing, logger_.messages.errors()));
  }

  void forget_errors() { logger_.messages.clear(); }

  void note(const std::string& text) const { tell_(text, false); }

  Engine load(const std::string& bytes) {
    logger_.messages.clear();
    return Engine(runtime_->deserializeCudaEngine(bytes.data(), bytes.size()));
  }

  std::string build() {
    logger_.messages.clear();
    const Nvidia& nvidia = Nvidia::here();
    const auto builder =
        owned<nvinfer1::IBuilder>(nvidia.create_builder(logger(), NV_TENSORRT_VERSION));
    if (!builder) fail("start its builder");
#if NV_TENSORRT_MAJOR < 10
    const auto explicit_batch = nvinfer1::NetworkDefinitionCreationFlag::kEXPLICIT_BATCH;
    const uint32_t flags = 1u << static_cast<uint32_t>(explicit_batch);
#else
    const uint32_t flags = 0;
#endif
    const auto network = owned<nvinfer1::INetworkDefinition>(builder->createNetworkV2(flags));
    if (!network) fail("make a network");
    const auto parser = parsed(nvidia, *network);  // holds the weights that the network reads
    const auto config = owned<nvinfer1::IBuilderConfig>(builder->createBuilderConfig());
    if (!config) fail("make a configuration");
    configure(*config);
    const auto timing = timing_cache(*config);
    Progress progress("TensorRT builds the engine of region " + key_.region,
                      [this](const std::string& text) { tell_(text, true); }, seconds_now);
    const Followed followed(logger_, progress);
#if NV_TENSORRT_MAJOR >= 10
    Monitor monitor(progress);
    config->setProgressMonitor(&monitor);
#endif
    const auto plan =
        owned<nvinfer1::IHostMemory>(builder->buildSerializedNetwork(*network, *config));
    if (!plan) fail("build the engine");
    keep_timing(*config);
    return std::string(static_cast<const char*>(plan->data()), plan->size());
  }

 private:
  const EngineKey& key_;
  const std::string folder_;
  const void* model_;
  size_t size_;
  const Tell tell_;
  Logger logger_;  // outlives what speaks to it
  std::unique_ptr<nvinfer1::IRuntime> runtime_;

  struct Followed {
    Followed(Logger& logger, Progress& progress) : logger(logger) { logger.follow(&progress); }
    ~Followed() { logger.follow(nullptr); }
    Logger& logger;
  };

  void* logger() { return static_cast<nvinfer1::ILogger*>(&logger_); }

  std::unique_ptr<nvonnxparser::IParser> parsed(const Nvidia& nvidia,
                                                nvinfer1::INetworkDefinition& network) {
    auto parser = owned<nvonnxparser::IParser>(
        nvidia.create_parser(&network, logger(), NV_ONNX_PARSER_VERSION));
    if (!parser) fail("start its ONNX parser");
    if (parser->parse(model_, size_)) return parser;
    // Its log only repeats the node, line by line.
    if (parser->getNbErrors() > 0) logger_.messages.clear();
    for (int i = 0; i < parser->getNbErrors(); ++i)
      logger_.messages.error(told(*parser->getError(i)));
    fail("read the region's ONNX");
  }

  static std::string told(const nvonnxparser::IParserError& error) {
    const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
    std::string node = error.node() < 0 ? "" : "node " + std::to_string(error.node()) + ": ";
#if NV_TENSORRT_MAJOR >= 10
    const std::string name = text(error.nodeName()), kind = text(error.nodeOperator());
    if (!kind.empty()) node = kind + (name.empty() ? "" : " '" + name + "'") + ": ";
#endif
    return node + text(error.desc());
  }

  void configure(nvinfer1::IBuilderConfig& config) {
    config.setMemoryPoolLimit(nvinfer1::MemoryPoolType::kWORKSPACE,
                              static_cast<size_t>(key_.workspace_bytes));
    // TensorRT rounds to ten bits of mantissa unless it is told not to.
    if (key_.precision == "fp32") config.clearFlag(nvinfer1::BuilderFlag::kTF32);
#if NV_TENSORRT_MAJOR < 11
    if (key_.precision == "int8") config.setFlag(nvinfer1::BuilderFlag::kINT8);
    if (key_.precision != "fp32" && key_.precision != "tf32")
      config.setFlag(nvinfer1::BuilderFlag::kFP16);
#endif  // since 11 its types are those of the model alone
#if NV_TENSORRT_MAJOR > 8 || NV_TENSORRT_MINOR >= 6
    config.setBuilderOptimizationLevel(key_.builder_level);
#endif
    if (key_.dla_core >= 0) {
      config.setDefaultDeviceType(nvinfer1::DeviceType::kDLA);
      config.setDLACore(key_.dla_core);
      config.setFlag(nvinfer1::BuilderFlag::kGPU_FALLBACK);
    }
  }

  std::unique_ptr<nvinfer1::ITimingCache> timing_cache(nvinfer1::IBuilderConfig& config) {
    std::string known;
    if (!folder_.empty())
      read_engine_file(folder_ + "/" + key_.timing_file(), key_.device(), &known);
    auto timing = owned<nvinfer1::ITimingCache>(config.createTimingCache(known.data(), known.size()));
    if (!timing) timing = owned<nvinfer1::ITimingCache>(config.createTimingCache(nullptr, 0));
    if (timing) config.setTimingCache(*timing, false);
    return timing;
  }

  void keep_timing(const nvinfer1::IBuilderConfig& config) {
    const nvinfer1::ITimingCache* timing = config.getTimingCache();
    if (timing == nullptr) return;
    const auto bytes = owned<nvinfer1::IHostMemory>(timing->serialize());
    if (bytes)
      write_engine_file(folder_, key_.timing_file(), key_.device(), bytes->data(), bytes->size());
  }
};

}  // namespace tensorrt
}  // namespace edgekit
