#include "versions.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sstream>
#include <stdexcept>

#include "folders.h"

namespace edgekit {
namespace {

constexpr const char* kDeployments = "deployments";
constexpr const char* kModels = "../../models/";
constexpr const char* kVersion = ".version";
constexpr const char* kNone = "none";
constexpr size_t kDigest = 64;
constexpr size_t kLongestStamp = 200;
constexpr size_t kMostDigits = 9;

// A record's first line: the deployment's number, the version before it, the device's clock.
// Numbers order versions, because the clocks of the device and of other hosts may be wrong.
struct Stamp {
  long number = 0;
  std::string before = kNone;
};

bool AllOf(const std::string& text, const char* characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string::npos;
}

bool IsHex(const std::string& text) { return AllOf(text, "0123456789abcdef"); }

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Stamp ReadStamp(const std::string& path) {
  std::istringstream words(FirstBytes(path, kLongestStamp));
  std::string number, before;
  words >> number >> before;
  Stamp stamp;
  if (AllOf(number, "0123456789") && number.size() <= kMostDigits) {
    stamp.number = std::atol(number.c_str());
  }
  if (IsHex(before)) stamp.before = before;
  return stamp;
}

// The versions of one model.
class Versions {
 public:
  explicit Versions(const std::string& model)
      : folder_(std::string(kDeployments) + "/" + model), link_(folder_ + "/current") {}

  const std::string& folder() const { return folder_; }

  std::string File(const std::string& digest) const { return folder_ + "/" + digest + kVersion; }

  bool Has(const std::string& digest) const { return FileSize(File(digest)) >= 0; }

  Stamp StampOf(const std::string& digest) const { return ReadStamp(File(digest)); }

  // The names of all records, the newest first.
  std::vector<std::string> Newest() const {
    std::vector<std::pair<long, std::string>> found;
    for (const std::string& name : NamesIn(folder_)) {
      const std::string digest = name.substr(0, name.size() - std::min(name.size(), kSuffix));
      if (name[0] != '.' && EndsWith(name, kVersion)) {
        found.emplace_back(StampOf(digest).number, digest);
      }
    }
    std::sort(found.rbegin(), found.rend());
    std::vector<std::string> digests;
    for (const auto& one : found) digests.push_back(one.second);
    return digests;
  }

  std::string Current() const {
    char target[256];
    const ssize_t length = readlink(link_.c_str(), target, sizeof target);
    const std::string to(target, length < 0 ? 0 : static_cast<size_t>(length));
    const std::string digest = to.rfind(kModels, 0) == 0 ? to.substr(std::strlen(kModels)) : "";
    return IsHex(digest) ? digest : kNone;
  }

  void MakeCurrent(const std::string& digest) const {
    const std::string made = link_ + ".new";
    unlink(made.c_str());
    if (symlink((kModels + digest).c_str(), made.c_str()) != 0 ||
        std::rename(made.c_str(), link_.c_str()) != 0) {
      const std::string reason = std::strerror(errno);
      unlink(made.c_str());
      throw std::runtime_error("cannot change " + link_ + ": " + reason);
    }
    Sync(folder_);
  }

 private:
  static constexpr size_t kSuffix = 8;  // of kVersion
  std::string folder_;
  std::string link_;
};

// Keeps the version itself, those that a rollback from it can reach, then the newest.
std::vector<std::string> Outdated(const Versions& versions, const std::string& digest,
                                  size_t keep) {
  std::vector<std::string> kept = {digest}, outdated;
  const auto is_kept = [&kept](const std::string& one) {
    return std::find(kept.begin(), kept.end(), one) != kept.end();
  };
  std::string before = versions.StampOf(digest).before;
  while (kept.size() < keep && versions.Has(before) && !is_kept(before)) {
    kept.push_back(before);
    before = versions.StampOf(before).before;
  }
  for (const std::string& version : versions.Newest()) {
    if (is_kept(version)) continue;
    if (!IsHex(version)) {
      unlink(versions.File(version).c_str());
    } else if (version.size() == kDigest) {
      (kept.size() < keep ? kept : outdated).push_back(version);
    }
  }
  return outdated;
}

bool IsRecorded(const std::string& digest) {
  for (const std::string& model : NamesIn(kDeployments)) {
    if (Versions(model).Has(digest)) return true;
  }
  return false;
}

// Deletes partial objects and objects without links.
void SweepObjects() {
  for (const std::string& name : NamesIn("objects")) {
    const std::string object = "objects/" + name;
    struct stat status;
    if (lstat(object.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (EndsWith(name, ".part") || status.st_nlink < 2) unlink(object.c_str());
  }
}

}  // namespace

Recorded RecordVersion(const std::string& model, const std::string& digest, size_t keep,
                       const std::string& record) {
  if (!IsFolder("models/" + digest)) throw std::runtime_error("its files are gone");
  const Versions versions(model);
  if (!IsFolder(kDeployments)) MakeFolder(kDeployments);
  if (!IsFolder(versions.folder())) MakeFolder(versions.folder());
  Recorded done;
  done.before = versions.Current();
  const bool is_current = done.before == digest;
  long last = 0;
  for (const std::string& version : versions.Newest()) {
    last = std::max(last, versions.StampOf(version).number);
  }
  const bool again = is_current && versions.Has(digest);
  std::ostringstream text;
  text << last + 1 << ' ' << (again ? versions.StampOf(digest).before : done.before) << ' '
       << std::time(nullptr) << '\n'
       << record << '\n';
  WriteWhole(versions.File(digest), text.str(), !is_current);
  if (!is_current) versions.MakeCurrent(digest);
  if (versions.Newest().size() <= keep) return done;
  done.removed = Outdated(versions, digest, keep);
  for (const std::string& version : done.removed) unlink(versions.File(version).c_str());
  for (const std::string& version : done.removed) {
    if (!IsRecorded(version)) RemoveFolder("models/" + version);
  }
  if (!done.removed.empty()) SweepObjects();
  return done;
}

void MakeCurrent(const std::string& model, const std::string& digest) {
  Versions(model).MakeCurrent(digest);
}

}  // namespace edgekit
