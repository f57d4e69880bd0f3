// The part of ONNX Runtime's C interface that a region needs. The library promises never to move a
// function in its table, so that their places are all that it takes: its wheels bring no headers.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtEnv;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtValue;

struct OrtApiBase {
  const void* const* (*table)(uint32_t version);
  const char* (*version)();
};

extern "C" const OrtApiBase* OrtGetApiBase();

namespace edgekit {
namespace onnxruntime {

// The version of the table in which the last of the functions below appeared.
constexpr uint32_t kTable = 5;

enum Place {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kCreateTensorWithDataAsOrtValue = 49,
  kCreateCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseSessionOptions = 100,
  kAddSessionConfigEntry = 130,
};

constexpr int kErrors = 3;          // of ORT_LOGGING_LEVEL
constexpr int kDeviceAllocator = 0; // of OrtAllocatorType
constexpr int kDefaultMemory = 0;   // of OrtMemType

// Values of ONNXTensorElementDataType.
enum Element {
  kFloat = 1, kUint8, kInt8, kUint16, kInt16, kInt32, kInt64, kBool = 9, kFloat16, kDouble, kUint32,
  kUint64, kBfloat16 = 16,
};

}  // namespace onnxruntime
}  // namespace edgekit
