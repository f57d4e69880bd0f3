#include "diary.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "folders.h"

namespace edgekit {
namespace {

constexpr const char* kLog = "log.jsonl";
constexpr const char* kOlderLog = "log.1.jsonl";
constexpr int64_t kLargestLog = 1 << 20;
constexpr const char* kModels = "../../models/";
constexpr const char* kVersion = ".version";
constexpr size_t kLongestStamp = 200;
constexpr size_t kMostDigits = 9;

// A record's first line: the deployment's number, the version before it, the device's clock.
struct Stamp {
  long number = 0;
  std::string before = "none";
};

bool AllOf(const std::string& text, const char* characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string::npos;
}

Stamp ReadStamp(const std::string& path) {
  std::istringstream words(FirstBytes(path, kLongestStamp));
  std::string number, before;
  words >> number >> before;
  Stamp stamp;
  if (AllOf(number, "0123456789") && number.size() <= kMostDigits) {
    stamp.number = std::atol(number.c_str());
  }
  if (AllOf(before, "0123456789abcdef")) stamp.before = before;
  return stamp;
}

std::string Target(const std::string& link) {
  char target[256];
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length < 0 ? "" : std::string(target, static_cast<size_t>(length));
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

void AddToLog(const std::string& line) {
  if (FileSize(kLog) >= kLargestLog) std::rename(kLog, kOlderLog);
  std::ofstream log(kLog, std::ios::binary | std::ios::app);
  log << "{\"clock\": " << std::time(nullptr) << ", " << line.substr(line.empty() ? 0 : 1) << '\n';
}

bool RecordAgain(const std::string& model, const std::string& digest, long keep,
                 const std::string& record) {
  const std::string folder = "deployments/" + model;
  const std::string mine = folder + "/" + digest + kVersion;
  if (Target(folder + "/current") != kModels + digest || FileSize(mine) < 0) return false;
  if (!IsFolder("models/" + digest)) return false;
  long versions = 0, last = 0;
  for (const std::string& name : NamesIn(folder)) {
    if (!EndsWith(name, kVersion)) continue;
    ++versions;
    last = std::max(last, ReadStamp(folder + "/" + name).number);
  }
  if (versions > keep) return false;
  std::ostringstream text;
  text << last + 1 << ' ' << ReadStamp(mine).before << ' ' << std::time(nullptr) << '\n'
       << record << '\n';
  WriteWhole(mine, text.str());
  return true;
}

}  // namespace edgekit
