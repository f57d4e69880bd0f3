#include "download.h"

#include <fcntl.h>
#include <signal.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "folders.h"
#include "json_reader.h"
#include "parent.h"
#include "sha2.h"

namespace edgekit {
namespace {

constexpr char kManifest[] = "Accept: application/vnd.oci.image.manifest.v1+json";
constexpr size_t kLongestReason = 300;
constexpr uint64_t kMostHeaders = 1 << 16, kLargestToken = 1 << 16;
constexpr int kNoRange = 33, kPartial = 18, kRefused = 22, kNoProgram = 127;

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

// Runs curl once. No file that it writes gets larger than `largest`.
void Curl(const std::string& url, const std::vector<std::string>& configs,
          const std::vector<std::string>& words, uint64_t largest) {
  // --disable: not the user's .curlrc. A transfer below a byte a second for a minute has ended.
  const bool is_plain = url.rfind("http://", 0) == 0;
  const std::string protocols = is_plain ? "=http,https" : "=https";
  std::vector<std::string> all = {"curl", "--disable", "--silent", "--show-error", "--fail",
                                  "--location", "--max-redirs", "5", "--proto", protocols,
                                  "--proto-redir", protocols, "--connect-timeout", "30",
                                  "--speed-limit", "1", "--speed-time", "60"};
  for (const std::string& config : configs) {
    if (!config.empty()) all.insert(all.end(), {"--config", config});
  }
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

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const unsigned char c : text) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%%%02X", c);
    escaped += std::isalnum(c) ? std::string(1, static_cast<char>(c)) : digits;
  }
  return escaped;
}

// The value of a word such as realm="..." in a challenge; empty if it is not there.
std::string WordOf(const std::string& challenge, const std::string& name) {
  const size_t at = challenge.find(name + "=\"");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2, end = challenge.find('"', begin);
  return end == std::string::npos ? "" : challenge.substr(begin, end - begin);
}

// The URL of the token that a registry's answer asks for; empty if it asks for none.
std::string TokenUrl(const std::string& answer) {
  static const std::string kChallenge = "www-authenticate: bearer ";
  std::istringstream lines(answer);
  std::string line;
  std::getline(lines, line);
  if (line.find(" 401") == std::string::npos) return "";
  while (std::getline(lines, line)) {
    if (strncasecmp(line.c_str(), kChallenge.c_str(), kChallenge.size()) != 0) continue;
    std::string url = WordOf(line, "realm");
    if (url.empty()) return "";
    for (const char* name : {"service", "scope"}) {
      const std::string value = WordOf(line, name);
      if (value.empty()) continue;
      url += (url.find('?') == std::string::npos ? "?" : "&") + (name + ("=" + Escaped(value)));
    }
    return url;
  }
  return "";
}

}  // namespace

void Server::Get(const std::string& place, std::vector<std::string> words, uint64_t largest) const {
  const std::string headers = folder_ + "/headers", token = folder_ + "/token";
  words.insert(words.end(), {"--dump-header", headers, "--suppress-connect-headers"});
  largest += kMostHeaders;
  const std::string kept = FileSize(token) > 0 ? token : "";
  try {
    Curl(root_ + place, {config_, kept}, words, largest);
    return;
  } catch (const CurlError& error) {
    const std::string url = TokenUrl(FirstBytes(headers, kMostHeaders));
    if (error.status != kRefused || url.empty()) throw;
    TakeToken(url);
  }
  Curl(root_ + place, {config_, token}, words, largest);
}

// The login goes where the registry says, by TLS unless the registry itself is reached without.
void Server::TakeToken(const std::string& url) const {
  const std::string answer = folder_ + "/token.json", token = folder_ + "/token";
  if (root_.rfind("https://", 0) == 0 && url.rfind("https://", 0) != 0) {
    throw DownloadError("the registry hands out its tokens without TLS");
  }
  Curl(url, {config_}, {"--output", answer, "--max-filesize", std::to_string(kLargestToken)},
       kLargestToken);
  const std::string text = FirstBytes(answer, kLargestToken);
  unlink(answer.c_str());
  std::string word;
  try {
    const Json said = Json::Read(text);
    const Json* found = said.Find("token");
    word = (found == nullptr ? said.At("access_token") : *found).Text();
  } catch (const std::runtime_error&) {
    throw DownloadError("the registry hands out no token");
  }
  const auto fits = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; };
  if (word.empty() || !std::all_of(word.begin(), word.end(), fits)) {
    throw DownloadError("the registry hands out no token");
  }
  WriteWhole(token, "header = \"Authorization: Bearer " + word + "\"\n");
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
  Get("/manifests/" + place, words, most);
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
      Get("/blobs/sha256:" + sha256,
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

void Post(const std::string& url, const std::string& config, const std::string& path) {
  Curl(url, {config},
       {"--header", "Content-Type: application/json", "--data-binary", "@" + path, "--max-time",
        "60"},
       0);
}

}  // namespace edgekit
