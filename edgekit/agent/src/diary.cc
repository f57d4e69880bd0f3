#include "diary.h"

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "folders.h"

namespace edgekit {
namespace {

constexpr const char* kLog = "log.jsonl";
constexpr const char* kOlderLog = "log.1.jsonl";
constexpr int64_t kLargestLog = 1 << 20;

}  // namespace

void AddToLog(const std::string& line) {
  if (FileSize(kLog) >= kLargestLog) std::rename(kLog, kOlderLog);
  std::ofstream log(kLog, std::ios::binary | std::ios::app);
  log << "{\"clock\": " << std::time(nullptr) << ", " << line.substr(line.empty() ? 0 : 1) << '\n';
}

}  // namespace edgekit
