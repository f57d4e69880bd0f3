// A stub of edgekit's tests, not NVIDIA's: see NvInferVersion.h beside it.
#pragma once
#include "NvInfer.h"

#define NV_ONNX_PARSER_VERSION 1

namespace nvonnxparser {

struct IParserError {
  virtual const char* desc() const = 0;
  virtual int node() const = 0;
  virtual const char* nodeName() const = 0;
  virtual const char* nodeOperator() const = 0;
  virtual ~IParserError() = default;
};

struct IParser {
  virtual bool parse(const void* model, size_t size) = 0;
  virtual int32_t getNbErrors() const = 0;
  virtual const IParserError* getError(int32_t place) const = 0;
  virtual ~IParser() = default;
};

}  // namespace nvonnxparser

extern "C" void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version);
