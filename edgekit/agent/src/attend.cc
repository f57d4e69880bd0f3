// attend ROOT: holds the device for the host on our input and serves its requests until that input
// ends. One process serves a whole deployment: on a slow board each program that is started costs a
// tenth of a second.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "commands.h"
#include "diary.h"
#include "folders.h"
#include "json.h"
#include "requests.h"
#include "supervise.h"
#include "versions.h"

namespace edgekit {
namespace {

using Words = std::vector<std::string>;

constexpr int kBetweenTries = 100;  // milliseconds
constexpr size_t kLongestHolder = 160;
constexpr size_t kLargestHolder = 4096;
constexpr size_t kLargestCommandLine = 64 << 10;
constexpr size_t kLargestCpuInfo = 4 << 20;

void Tell(const char* word, const std::string& rest = "") {
  std::printf("edgekit %s %s\n", word, rest.c_str());
  std::fflush(stdout);
}

const std::string& At(const Words& words, size_t index) {
  if (index >= words.size()) throw std::runtime_error("a request lacks words: " + words[0]);
  return words[index];
}

size_t NumberAt(const Words& words, size_t index) {
  const std::string& text = At(words, index);
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') throw std::runtime_error("no number: " + text);
  return number;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

void SendFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char block[1 << 16];
  ssize_t count;
  while (fd >= 0 && (count = read(fd, block, sizeof block)) > 0) {
    std::fwrite(block, 1, static_cast<size_t>(count), stdout);
  }
  if (fd >= 0) close(fd);
}

// What tells whether the machine is emulated; `edgekit/devices/linux/probe.py` lists the same files.
std::string Platform() {
  std::string words;
  for (const char* path :
       {"/proc/device-tree/compatible", "/sys/class/dmi/id/sys_vendor",
        "/sys/class/dmi/id/product_name",
        "/sys/devices/system/clocksource/clocksource0/available_clocksource"}) {
    words += FirstBytes(path, kLargestHolder) + " ";
  }
  const std::string counters = "/sys/bus/event_source/devices";
  for (const std::string& name : NamesIn(counters)) {
    if (name.rfind("armv8", 0) != 0) continue;
    for (const char* event : {"/events/cpu_cycles", "/events/l1d_cache_refill"}) {
      words += FirstBytes(counters + "/" + name + event, kLargestHolder) + " ";
    }
  }
  for (char& byte : words) {
    if (byte == '\0' || byte == '\n') byte = ' ';
  }
  return words;
}

// Seconds since the start of the system: a board's clock may be wrong.
long Uptime() { return std::atol(FirstBytes("/proc/uptime", 32).c_str()); }

// Ends the commands of a connection whose input is a stream of data, with no room for signs of
// life. edgekit/devices/linux/signs_of_life.py has the same in shell.
void EndStreams(const std::string& connection) {
  for (const std::string& name : NamesIn("/proc")) {
    const auto pid = static_cast<pid_t>(std::atol(name.c_str()));
    if (pid <= 0) continue;
    const std::string words = FirstBytes("/proc/" + name + "/cmdline", kLargestCommandLine);
    if (words.find("stream-" + connection) == std::string::npos) continue;
    if (kill(-pid, SIGKILL) != 0) kill(pid, SIGKILL);
  }
}

class LeaseServer {
 public:
  explicit LeaseServer(std::string root) : root_(std::move(root)) {}

  ~LeaseServer() { Clean(); }

  // Ends all work of this process and of the host's connection once the host is silent for so many
  // seconds.
  void EndInSilence(int seconds, const std::string& connection) {
    requests_.EndInSilence(seconds, [this, connection] {
      EndRunning();
      EndStreams(connection);
      Clean();
    });
  }

  // Another process of the host holds the device; `scratch` is its folder.
  void Use(const std::string& scratch) { scratch_ = scratch; }

  void Attend() {
    for (Words words = requests_.Next(); !words.empty(); words = requests_.Next()) {
      if (words[0] == "take") {
        if (!Take(words)) return;
      } else if (words[0] == "call") {
        Call(words);
      } else if (words[0] == "log") {
        AddToLog(At(words, 1));
      } else if (words[0] == "record" || words[0] == "current") {
        Record(words);
      } else {
        throw std::runtime_error("no request is called " + words[0]);
      }
    }
  }

 private:
  void Clean() {
    const std::lock_guard<std::mutex> guard(cleaning_);
    if (ours_) RemoveFolder(scratch_);
    ours_ = false;
  }

  // take stay|wait NAME USER FILE...: false if the device can't be held.
  bool Take(const Words& words) {
    if (!Lock(At(words, 1) == "wait")) return false;
    for (const std::string& left : NamesIn("runs")) RemoveFolder("runs/" + left);
    {
      const std::lock_guard<std::mutex> guard(cleaning_);
      scratch_ = "runs/" + At(words, 2);
      MakeFolder(scratch_);
      ours_ = true;
    }
    WriteWhole("holder", At(words, 3) + "\n" + std::to_string(Uptime()) + "\n");
    Tell("root", root_);
    utsname system;
    uname(&system);
    Tell("machine", system.machine);
    Tell("platform", Platform());
    for (size_t i = 4; i < words.size(); ++i) {
      const int64_t size = FileSize(words[i]);
      if (size >= 0) Tell("file", std::to_string(size) + " " + words[i]);
      if (i == 4 || i + 1 == words.size()) {
        utimensat(AT_FDCWD, FolderOf(words[i]).c_str(), nullptr, 0);  // it is in use
      }
    }
    Tell("cpuinfo");
    const std::string cpu = FirstBytes("/proc/cpuinfo", kLargestCpuInfo);
    std::fwrite(cpu.data(), 1, cpu.size(), stdout);
    Tell("mine");
    return true;
  }

  bool Lock(bool wait) {
    lock_ = open("lock", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (lock_ < 0) throw std::runtime_error(std::string("cannot lock: ") + std::strerror(errno));
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return true;
    std::istringstream holder(FirstBytes("holder", kLargestHolder));
    std::string by;
    long since = -1;
    std::getline(holder, by);
    holder >> since;
    const long age = since < 0 || holder.fail() ? -1 : Uptime() - since;
    Tell("busy", std::to_string(age) + " " + by.substr(0, kLongestHolder));
    while (wait) {
      if (requests_.Ended(-1, kBetweenTries)) return false;
      if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return true;
    }
    return false;
  }

  // call MARK OUTPUTS SAMPLES FILES (NAME SIZE)... COMMAND...: the files' bytes come next. A line
  // with the mark, which no model can know, ends the command's output.
  void Call(const Words& words) {
    const std::string& mark = At(words, 1);
    const size_t outputs = NumberAt(words, 2), samples = NumberAt(words, 3);
    const size_t files = NumberAt(words, 4), command = 5 + 2 * files;
    Ended ended;
    if (StoreInputs(words, samples, files)) {
      At(words, command);
      const Words rest(words.begin() + static_cast<long>(command), words.end());
      ended = Supervise(rest, scratch_, requests_);
    } else {
      ended.status = 1;
    }
    std::printf("\n%s %d %zu\n", mark.c_str(), ended.status, ended.errors.size());
    for (const std::string& line : ended.errors) std::printf("%s\n", line.c_str());
    if (ended.status == 0) SendOutputs(outputs, samples);
    std::fflush(stdout);
  }

  bool StoreInputs(const Words& words, size_t samples, size_t files) {
    std::string reason;
    try {
      for (const std::string& left : NamesIn(scratch_)) RemoveFolder(scratch_ + "/" + left);
      for (size_t i = 0; i < samples; ++i) MakeFolder(Sample(i));
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
    for (size_t i = 0; i < files; ++i) {
      const std::string path = scratch_ + "/" + At(words, 5 + 2 * i);
      const std::string failed =
          requests_.Store(NumberAt(words, 6 + 2 * i), reason.empty() ? path : "/dev/null");
      if (reason.empty()) reason = failed;
    }
    if (!reason.empty()) Say(Object().Text("error", reason).Text("kind", "inputs"));
    return reason.empty();
  }

  void SendOutputs(size_t outputs, size_t samples) {
    Words paths;
    for (size_t i = 0; i < samples; ++i) {
      for (size_t k = 0; k < outputs; ++k) {
        paths.push_back(Sample(i) + "/output-" + std::to_string(k) + ".npy");
      }
    }
    for (const std::string& path : paths) {
      std::printf("%lld\n", static_cast<long long>(FileSize(path)));
    }
    for (const std::string& path : paths) SendFile(path);
  }

  std::string Sample(size_t number) const {
    return scratch_ + "/sample-" + std::to_string(number);
  }

  // record MODEL DIGEST LINE KEEP RECORD: answers with the version before and the removed ones.
  // current MODEL DIGEST LINE
  void Record(const Words& words) {
    const std::string &model = At(words, 1), &digest = At(words, 2), &line = At(words, 3);
    try {
      if (words[0] == "current") {
        MakeCurrent(model, digest);
      } else {
        const Recorded done = RecordVersion(model, digest, NumberAt(words, 4), At(words, 5));
        Tell("before", done.before);
        for (const std::string& version : done.removed) Tell("removed", version);
      }
    } catch (const std::runtime_error& error) {
      Tell("failed", error.what());
      return;
    }
    AddToLog(line);
    Tell("recorded");
  }

  std::string root_;
  std::string scratch_;
  bool ours_ = false;
  int lock_ = -1;
  std::mutex cleaning_;
  Requests requests_;
};

}  // namespace

int Attend(Arguments arguments) {
  const std::string held = arguments.Text("--held", "");
  const std::string connection = arguments.Text("--connection", "");
  const auto silence = static_cast<int>(arguments.Number("--silence", 0));
  const auto rest =
      arguments.Rest(1, "attend [--held FOLDER] [--silence SECONDS --connection MARK] ROOT");
  signal(SIGPIPE, SIG_IGN);
  umask(077);
  if (chdir(rest[0].c_str()) != 0 || !IsFolder("objects") || !IsFolder("runs")) {
    Tell("none");
    return 0;
  }
  LeaseServer server(rest[0]);
  if (!held.empty()) server.Use(held);
  if (silence > 0) server.EndInSilence(silence, connection);
  Tell("here");
  server.Attend();
  return 0;
}

}  // namespace edgekit
