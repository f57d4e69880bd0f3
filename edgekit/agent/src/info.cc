// info [FOLDER]: facts that edgekit checks a bundle against before it sends it.
#include <gnu/libc-version.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <fstream>
#include <sstream>

#include "commands.h"
#include "machine.h"

namespace edgekit {
namespace {

// The value of `key` in /proc/meminfo or /proc/cpuinfo, from the first entry that has it.
std::string ProcField(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (name != key) continue;
    size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string Words(const std::string& text) {
  std::istringstream stream(text);
  std::string list;
  for (std::string word; stream >> word;) list += (list.empty() ? "" : ", ") + Quoted(word);
  return "[" + list + "]";
}

int64_t KilobytesAsBytes(const std::string& text) {
  return text.empty() ? -1 : std::atoll(text.c_str()) * 1024;
}

}  // namespace

int Info(Arguments arguments) {
  auto rest = arguments.Rest(0, "info [FOLDER]");
  const std::string folder = rest.empty() ? "." : rest[0];
  utsname system;
  uname(&system);
  struct statvfs disk;
  bool disk_known = statvfs(folder.c_str(), &disk) == 0;
  std::string features = ProcField("/proc/cpuinfo", "Features");
  if (features.empty()) features = ProcField("/proc/cpuinfo", "flags");
  std::string temperature = FirstLine("/sys/class/thermal/thermal_zone0/temp");
  Object answer;
  answer.Text("agent", EDGEKIT_AGENT_VERSION)
      .Text("tvm", EDGEKIT_TVM_VERSION)
      .Text("tvm_ffi", EDGEKIT_TVM_FFI_VERSION)
      .Text("machine", system.machine)
      .Text("kernel", system.release)
      .Text("hostname", system.nodename)
      .Text("glibc", gnu_get_libc_version())
      .Raw("features", Words(features))
      .Int("cores", UsableCores())
      .IntOrNull("memory", KilobytesAsBytes(ProcField("/proc/meminfo", "MemTotal")))
      .IntOrNull("memory_available", KilobytesAsBytes(ProcField("/proc/meminfo", "MemAvailable")))
      .IntOrNull("disk_free", disk_known ? static_cast<int64_t>(disk.f_bavail * disk.f_frsize) : -1)
      .Flag("writable", disk_known && (disk.f_flag & ST_RDONLY) == 0)
      .IntOrNull("millidegrees", temperature.empty() ? -1 : std::atoll(temperature.c_str()))
      .Raw("host", HostState().Str());
  Say(answer);
  return 0;
}

}  // namespace edgekit
