// follow ROOT oci://HOST/NAME: takes the version that a channel's rollout gives to this board, once.
// A timer of the board's calls it again and again. docs/registry.md describes it.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "commands.h"
#include "folders.h"
#include "installation.h"
#include "json.h"
#include "model.h"
#include "sha2.h"
#include "versions.h"

namespace edgekit {
namespace {

constexpr size_t kLargestDocument = 4 << 20, kLargestManifest = 16 << 20, kLargestKey = 10'000;
constexpr size_t kLongestLine = 1000, kLongestError = 300, kLargestReport = 10'000;
constexpr long kMostTries = 3;
const std::string kScheme = "oci://";

struct Settings {
  std::string key, channel, name, board, config, after, report, report_config;
  std::string host, repository;
  bool is_plain = false;
  size_t keep = 3;
  int seconds = 600;

  std::string Root() const {
    return (is_plain ? "http://" : "https://") + host + "/v2/" + repository;
  }
};

std::string At(const char* name) { return kFollow + "/" + name; }

// The beginning of a text that may hold anything, as printable ASCII.
std::string Printable(std::string text) {
  text.resize(std::min(text.size(), kLongestError));
  for (char& c : text) c = c < ' ' || c > '~' ? '?' : c;
  return text;
}

// The words of a file's first line.
std::vector<std::string> Words(const std::string& path) {
  std::istringstream line(FirstBytes(path, kLongestLine));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

// Holds a lock until the end; false if another process holds it and `wait` is not set.
class Lock {
 public:
  Lock(const std::string& path, bool wait) {
    fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd_ < 0) throw std::runtime_error("cannot lock " + path + ": " + std::strerror(errno));
    is_held_ = flock(fd_, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0;
  }
  ~Lock() { close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool is_held() const { return is_held_; }

 private:
  int fd_ = -1;
  bool is_held_ = false;
};

class Follower {
 public:
  explicit Follower(Settings settings)
      : settings_(std::move(settings)),
        server_(settings_.Root(), settings_.config, kFollow) {}

  int Follow() {
    const Signed rollout = ReadRollout();
    const Json& version = VersionFor(rollout.statement, settings_.name);
    if (version.IsNull()) return Tell("nothing", "the channel has nothing for this board yet");
    const std::string manifest = version.At("manifest").Text();
    if (!IsSha256(manifest)) throw std::runtime_error("the rollout names no manifest");
    if (IsCurrent(manifest)) {
      const bool is_told = Mentions("report", manifest) || Mentions("reported", manifest);
      if (!is_told) NoteReport(rollout, version, "updated", true, "");
      return Tell("current", "");
    }
    const std::string attempt = manifest + " " + std::to_string(rollout.statement.At("counter").Count());
    if (FirstBytes(At("failed"), attempt.size()) == attempt) {
      return Tell("kept", "the rollout's version failed on this board");
    }
    try {
      const std::string outcome = Install(version, attempt);
      unlink(At("failed").c_str());
      unlink(At("trying").c_str());
      NoteReport(rollout, version, outcome, true, "");
      return Tell(outcome.c_str(), "");
    } catch (const BundleFailed& error) {
      WriteWhole(At("failed"), attempt + "\n" + error.what() + "\n", true);
      unlink(At("trying").c_str());
      NoteReport(rollout, version, "failed", false, error.what());
      Tell("failed", error.what());
      return 1;
    } catch (const DownloadError&) {
      throw;
    } catch (const std::runtime_error& error) {  // such as a full disk: it is tried again
      NoteReport(rollout, version, "failed", false, error.what());
      throw;
    }
  }

  // Sends the last outcome, unless it was sent.
  void SendReport() const {
    if (settings_.report.empty() || FileSize(At("report")) <= 0) return;
    try {
      Post(settings_.report, settings_.report_config, At("report"));
      std::rename(At("report").c_str(), At("reported").c_str());
    } catch (const DownloadError& error) {
      std::fprintf(stderr, "edgekit-agent: the report is kept: %s\n", error.what());
    }
  }

 private:
  int Tell(const char* outcome, const std::string& why) const {
    Object said;
    said.Text("outcome", outcome);
    if (!digest_.empty()) said.Text("digest", digest_).Int("received", static_cast<int64_t>(received_));
    if (!why.empty()) said.Text("reason", why);
    Say(said);
    return 0;
  }

  Signed ReadRollout() const {
    const std::string place = "rollout-" + settings_.channel;
    const std::string path = At("rollout");
    server_.Document(place, path, kLargestDocument);
    try {
      const Signed rollout = ReadSigned(FirstBytes(path, kLargestDocument), settings_.key, "rollout");
      const Json& said = rollout.statement;
      if (said.At("name").Text() != settings_.repository ||
          said.At("channel").Text() != settings_.channel) {
        throw std::runtime_error("it is signed for another channel");
      }
      CheckAge(said.At("counter").Count(), Sha256Of(rollout.text));
      return rollout;
    } catch (const std::runtime_error& error) {
      unlink((path + ".etag").c_str());
      throw std::runtime_error("the rollout of " + settings_.channel + " is refused: " + error.what());
    }
  }

  static bool Mentions(const char* name, const std::string& manifest) {
    return FirstBytes(At(name), kLargestReport).find(manifest) != std::string::npos;
  }

  // Numbers order rollouts, because the board's clock may be wrong.
  static void CheckAge(int64_t counter, const std::string& content) {
    const std::vector<std::string> seen = Words(At("seen"));
    const int64_t last = seen.size() == 2 ? std::atoll(seen[0].c_str()) : -1;
    if (counter < last) {
      throw std::runtime_error("it is number " + std::to_string(counter) + ", and number " +
                               std::to_string(last) + " was seen before");
    }
    if (counter == last && content != seen[1]) {
      throw std::runtime_error("another number " + std::to_string(counter) + " was seen before");
    }
    if (counter > last) WriteWhole(At("seen"), std::to_string(counter) + " " + content + "\n", true);
  }

  // Whether the version was made current, and is still.
  static bool IsCurrent(const std::string& manifest) {
    const std::vector<std::string> done = Words(At("done"));
    if (done.size() != 3 || done[0] != manifest) return false;
    const std::string link = "deployments/" + done[1] + "/current";
    char target[256];
    const ssize_t length = readlink(link.c_str(), target, sizeof target);
    return length > 0 && std::string(target, static_cast<size_t>(length)) == "../../models/" + done[2] &&
           FileSize(link + "/model.so") > 0;
  }

  // A version that ends the board, and not just its own process, is given up after a few tries. One
  // without an end counts once the board has started again.
  static void CountTry(const std::string& attempt) {
    const std::vector<std::string> before = Words(At("trying"));
    const std::vector<std::string> boot = Words("/proc/sys/kernel/random/boot_id");
    const std::string now = boot.empty() ? "unknown" : boot[0];
    long tries = 1;
    if (before.size() == 4 && before[0] + " " + before[1] == attempt) {
      tries = std::atol(before[2].c_str()) + (before[3] == now ? 0 : 1);
    }
    if (tries > kMostTries) throw BundleFailed("the board did not outlive its reference run");
    WriteWhole(At("trying"), attempt + " " + std::to_string(tries) + " " + now + "\n", true);
  }

  std::string Install(const Json& version, const std::string& attempt) {
    const std::string tag = version.At("tag").Text(), manifest = version.At("manifest").Text();
    if (tag.empty() || tag.find_first_of("/?#%") != std::string::npos) {
      throw std::runtime_error("the rollout names no tag");
    }
    unlink(At("bundle.etag").c_str());  // it may be another tag's
    server_.Document(tag, At("bundle"), kLargestDocument);
    const Signed bundle = Refusing(tag, [&] {
      Signed found = ReadSigned(FirstBytes(At("bundle"), kLargestDocument), settings_.key, "bundle");
      const Json& said = found.statement;
      if (said.At("name").Text() != settings_.repository || said.At("tag").Text() != tag ||
          said.At("manifest").Text() != manifest) {
        throw std::runtime_error("it holds another bundle than the rollout names");
      }
      if (!settings_.board.empty() && said.At("board").Text() != settings_.board) {
        throw std::runtime_error("it is for the board " + said.At("board").Text());
      }
      if (found.manifest_size > kLargestManifest) throw std::runtime_error("its manifest is too large");
      return found;
    });
    server_.Blob(manifest, bundle.manifest_size, At("manifest"));
    const Installation version_here = Refusing(tag, [&] {
      return Installation(bundle, FirstBytes(At("manifest"), kLargestManifest));
    });
    digest_ = version_here.digest();
    received_ = version_here.Fetch(server_);

    const Lock device("lock", true);
    WriteWhole("holder", "edgekit-agent follow\n" +
                             std::to_string(std::atol(FirstBytes("/proc/uptime", 32).c_str())) + "\n");
    CountTry(attempt);
    version_here.Place();
    nanoseconds_ = version_here.Verify(settings_.seconds);
    const std::string folder = FolderOfModel(version_here.model());
    const Recorded recorded =
        RecordVersion(folder, digest_, settings_.keep, version_here.Record(nanoseconds_));
    RunAfter(folder, recorded.before);
    std::rename(At("bundle").c_str(), At("installed.bundle").c_str());
    std::rename(At("manifest").c_str(), At("installed.manifest").c_str());
    WriteWhole(At("done"), manifest + " " + folder + " " + digest_ + "\n", true);
    version_here.Clean();
    return "updated";
  }

  // The command starts the application with the new version. If it fails, the board goes back.
  void RunAfter(const std::string& folder, const std::string& before) const {
    if (settings_.after.empty()) return;
    if (Shell(settings_.after) == 0) return;
    if (before == "none") {
      unlink(("deployments/" + folder + "/current").c_str());
    } else if (before != digest_) {
      MakeCurrent(folder, before);
      Shell(settings_.after);
    }
    throw BundleFailed("the command after the change failed, and the version before is current again");
  }

  static int Shell(const std::string& command) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      dup2(STDERR_FILENO, STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  void NoteReport(const Signed& rollout, const Json& version, const std::string& outcome,
                  bool verified, const std::string& error) const {
    if (settings_.report.empty()) return;
    Object report;
    report.Text("name", settings_.repository)
        .Text("channel", settings_.channel)
        .Text("board", settings_.name)
        .Int("counter", rollout.statement.At("counter").Count())
        .Text("manifest", version.At("manifest").Text())
        .Text("outcome", outcome)
        .Flag("verified", verified);
    if (nanoseconds_ > 0) report.Int("nanoseconds", nanoseconds_);
    if (!error.empty()) report.Text("error", Printable(error));
    const std::string text = report.Str() + "\n";
    if (text == FirstBytes(At("reported"), kLargestReport)) return;
    try {
      WriteWhole(At("report"), text);
    } catch (const std::runtime_error& failure) {  // the outcome itself is what matters
      std::fprintf(stderr, "edgekit-agent: %s\n", failure.what());
    }
  }

  template <typename Doing>
  static auto Refusing(const std::string& tag, const Doing& doing) -> decltype(doing()) {
    try {
      return doing();
    } catch (const BundleFailed&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw std::runtime_error("the bundle " + tag + " is refused: " + error.what());
    }
  }

  Settings settings_;
  Server server_;
  std::string digest_;
  uint64_t received_ = 0;
  int64_t nanoseconds_ = 0;
};

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The absolute path of a file, because the agent works in its root.
std::string Absolute(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) {
    throw std::runtime_error("cannot read " + path + ": " + std::strerror(errno));
  }
  return resolved;
}

}  // namespace

int Follow(Arguments arguments) {
  static const char kUsage[] =
      "follow --key FILE --channel NAME [--name BOARD] [--board PROFILE] [--after COMMAND] "
      "[--report URL] [--report-config FILE] [--curl-config FILE] [--keep N] [--seconds N] "
      "[--plain-http] ROOT "
      "oci://HOST[:PORT]/NAME";
  Settings settings;
  const std::string key = arguments.Text("--key", "");
  settings.channel = arguments.Text("--channel", "");
  settings.name = arguments.Text("--name", HostName());
  settings.board = arguments.Text("--board", "");
  settings.after = arguments.Text("--after", "");
  settings.report = arguments.Text("--report", "");
  settings.report_config = arguments.Text("--report-config", "");
  settings.config = arguments.Text("--curl-config", "");
  settings.keep = static_cast<size_t>(arguments.Number("--keep", 3));
  settings.seconds = static_cast<int>(arguments.Number("--seconds", 600));
  settings.is_plain = arguments.Flag("--plain-http");
  const std::vector<std::string> rest = arguments.Rest(2, kUsage);
  const std::string& address = rest[1];
  const size_t slash = address.find('/', kScheme.size());
  if (key.empty() || settings.channel.empty() || settings.name.empty() || settings.keep < 2 ||
      address.rfind(kScheme, 0) != 0 || slash == std::string::npos || slash + 1 == address.size() ||
      settings.channel.find_first_of("/?#%") != std::string::npos) {
    throw std::invalid_argument(std::string("usage: edgekit-agent ") + kUsage);
  }
  settings.host = address.substr(kScheme.size(), slash - kScheme.size());
  settings.repository = address.substr(slash + 1);
  settings.key = ReadKey(FirstBytes(Absolute(key), kLargestKey));
  for (std::string* config : {&settings.config, &settings.report_config}) {
    if (!config->empty()) *config = Absolute(*config);
  }

  signal(SIGPIPE, SIG_IGN);
  umask(077);
  if (!IsFolder(rest[0])) MakeFolder(rest[0]);
  if (chdir(rest[0].c_str()) != 0) throw std::runtime_error("cannot enter " + rest[0]);
  for (const std::string& folder : {std::string("objects"), std::string("models"),
                                    std::string("agents"), std::string("runs"), kFollow}) {
    if (!IsFolder(folder)) MakeFolder(folder);
  }
  const Lock only_one(At("lock"), false);
  if (!only_one.is_held()) {
    Say(Object().Text("outcome", "busy").Text("reason", "another process follows the channel"));
    return 0;
  }
  Follower follower(settings);
  int code = 0;
  try {
    code = follower.Follow();
  } catch (const DownloadError& error) {
    follower.SendReport();
    throw ModelError("network", error.what());
  } catch (const std::runtime_error&) {
    follower.SendReport();
    throw;
  }
  follower.SendReport();
  return code;
}

}  // namespace edgekit
