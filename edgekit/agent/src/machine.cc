#include "machine.h"

#include <sched.h>
#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace edgekit {
namespace {

constexpr int kMostCores = 1024;

std::string CpuFreq(int core, const char* file) {
  return FirstLine("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpufreq/" + file);
}

}  // namespace

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t StatusBytes(const char* key) {
  std::ifstream status("/proc/self/status");
  std::string start = std::string(key) + ":";
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(start, 0) == 0) return std::atoll(line.c_str() + start.size()) * 1024;
  }
  return -1;
}

bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

int UsableCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

Object HostState() {
  std::set<std::string> governors;
  double sum = 0;
  int known = 0;
  for (int core = 0; core < kMostCores; ++core) {
    std::string governor = CpuFreq(core, "scaling_governor");
    if (governor.empty()) break;
    governors.insert(governor);
    std::string kilohertz = CpuFreq(core, "scaling_cur_freq");
    if (!kilohertz.empty()) {
      sum += std::atof(kilohertz.c_str()) / 1000;
      ++known;
    }
  }
  std::string joined;
  for (const std::string& governor : governors) joined += (joined.empty() ? "" : ",") + governor;
  Object state;
  state.Raw("governor", joined.empty() ? "null" : Quoted(joined));
  if (known > 0) {
    state.Real("frequency_mhz", sum / known);
  } else {
    state.Raw("frequency_mhz", "null");
  }
  double load[1];
  if (getloadavg(load, 1) == 1) {
    state.Real("load_average", load[0]);
  } else {
    state.Raw("load_average", "null");
  }
  return state.Int("cores", UsableCores());
}

}  // namespace edgekit
