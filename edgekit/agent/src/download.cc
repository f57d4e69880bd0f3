#include "download.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "folders.h"
#include "parent.h"
#include "sha2.h"

namespace edgekit {
namespace {

constexpr char kManifest[] = "Accept: application/vnd.oci.image.manifest.v1+json";
constexpr size_t kLongestReason = 300;
constexpr int kNoRange = 33, kPartial = 18, kNoProgram = 127;

int Finished(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct CurlError : DownloadError {
  CurlError(const std::string& reason, int given) : DownloadError(reason), status(given) {}
  int status;
};

}  // namespace

void Server::Curl(const std::string& url, std::vector<std::string> words, uint64_t largest) const {
  // --disable: not the user's .curlrc. A transfer below a byte a second for a minute has ended.
  const bool is_plain = url.rfind("http://", 0) == 0;
  const std::string protocols = is_plain ? "=http,https" : "=https";
  std::vector<std::string> all = {"curl", "--disable", "--silent", "--show-error", "--fail",
                                  "--location", "--max-redirs", "5", "--proto", protocols,
                                  "--proto-redir", protocols, "--connect-timeout", "30",
                                  "--speed-limit", "1", "--speed-time", "60"};
  if (!config_.empty()) all.insert(all.end(), {"--config", config_});
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--", url});
  std::vector<char*> given;
  for (std::string& word : all) given.push_back(word.data());
  given.push_back(nullptr);

  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  std::fflush(stdout);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    EndWithParent(parent, SIGKILL);
    dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
    dup2(STDIN_FILENO, STDOUT_FILENO);
    dup2(errors[1], STDERR_FILENO);
    // A server that sends more than it should must not fill the disk.
    signal(SIGXFSZ, SIG_IGN);
    const auto bytes = static_cast<rlim_t>(largest);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    execvp("curl", given.data());
    _exit(kNoProgram);
  }
  close(errors[1]);
  std::string reason;
  char block[512];
  for (ssize_t count; child > 0 && (count = read(errors[0], block, sizeof block)) > 0;) {
    if (reason.size() < kLongestReason) reason.append(block, static_cast<size_t>(count));
  }
  close(errors[0]);
  if (child < 0) throw std::runtime_error("cannot start curl");
  const int status = Finished(child);
  if (status == kNoProgram) throw std::runtime_error("this board has no curl: install it");
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  if (reason.empty()) reason = "curl ended with status " + std::to_string(status);
  if (status != 0) throw CurlError(reason.substr(0, kLongestReason), status);
}

void Server::Document(const std::string& place, const std::string& path, uint64_t most) const {
  const std::string fresh = path + ".new", tag = path + ".etag", fresh_tag = tag + ".new";
  unlink(fresh.c_str());
  unlink(fresh_tag.c_str());
  std::vector<std::string> words = {"--header", kManifest, "--max-filesize", std::to_string(most),
                                    "--etag-save", fresh_tag, "--output", fresh};
  if (FileSize(path) > 0 && FileSize(tag) > 0) {
    words.insert(words.end(), {"--etag-compare", tag});
  }
  Curl(root_ + "/manifests/" + place, words, most);
  if (FileSize(fresh) <= 0) {  // not modified
    if (FileSize(path) <= 0) throw DownloadError(place + " is empty");
    return;
  }
  // The old ETag with the new document costs one more transfer; the other way round, the document.
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  }
  if (std::rename(fresh_tag.c_str(), tag.c_str()) != 0) unlink(tag.c_str());
}

void Server::Blob(const std::string& sha256, uint64_t size, const std::string& path) const {
  const std::string part = path + ".part";
  for (const bool again : {false, true}) {
    if (FileSize(part) > static_cast<int64_t>(size)) unlink(part.c_str());
    if (FileSize(part) == static_cast<int64_t>(size)) break;
    try {
      Curl(root_ + "/blobs/sha256:" + sha256,
           {"--continue-at", "-", "--output", part, "--max-filesize", std::to_string(size)}, size);
      break;
    } catch (const CurlError& error) {
      if (again || (error.status != kNoRange && error.status != kPartial)) throw;
      if (error.status == kNoRange) unlink(part.c_str());
    }
  }
  if (FileSize(part) != static_cast<int64_t>(size) || Sha256OfFile(part) != sha256) {
    unlink(part.c_str());
    throw DownloadError("the registry holds other content for the blob " + sha256.substr(0, 12) +
                        " than was signed");
  }
  Sync(part);
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  }
}

void Server::Report(const std::string& url, const std::string& path) const {
  Curl(url,
       {"--header", "Content-Type: application/json", "--data-binary", "@" + path, "--max-time",
        "60"},
       0);
}

}  // namespace edgekit
