#include "installation.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "commands.h"
#include "compare.h"
#include "folders.h"
#include "json.h"
#include "model.h"
#include "npy.h"
#include "parent.h"
#include "sha2.h"

namespace edgekit {
namespace {

constexpr size_t kLargestDocument = 16 << 20, kLongestName = 64, kLongestReason = 300;
constexpr uint64_t kSpare = 4 << 20;  // bytes to leave free for the file system's own needs
constexpr int kBetweenLooks = 20;     // milliseconds
const std::string kParts = kFollow + "/parts/";
const std::string kRun = "runs/follow";

bool IsPlain(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && name[0] != '.' && name[0] != '-' &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789._+-") == std::string::npos;
}

[[noreturn]] void CannotWrite(const std::string& path) {
  throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

// Appends some bytes of a file to another.
void Append(const std::string& from, uint64_t offset, uint64_t size, const std::string& to) {
  using File = std::unique_ptr<FILE, int (*)(FILE*)>;
  const File source(std::fopen(from.c_str(), "rbe"), std::fclose);
  File target(std::fopen(to.c_str(), "abe"), std::fclose);
  if (target == nullptr) CannotWrite(to);
  if (source == nullptr || fseeko(source.get(), static_cast<off_t>(offset), SEEK_SET) != 0) return;
  char block[1 << 16];
  while (size > 0) {
    const auto asked = static_cast<size_t>(std::min<uint64_t>(size, sizeof block));
    const size_t count = std::fread(block, 1, asked, source.get());
    if (count == 0) return;
    if (std::fwrite(block, 1, count, target.get()) != count) CannotWrite(to);
    size -= count;
  }
  if (std::fclose(target.release()) != 0) CannotWrite(to);
}

bool Holds(const std::string& path, const std::string& sha256, uint64_t size) {
  return FileSize(path) == static_cast<int64_t>(size) && Sha256OfFile(path) == sha256;
}

struct Source {
  std::string path;
  uint64_t offset = 0;
};

// The parts of the version that was installed last, by their hash.
std::map<std::string, Source> Installed() {
  std::map<std::string, Source> held;
  try {
    const Json document = Json::Read(FirstBytes(kFollow + "/installed.bundle", kLargestDocument));
    const Json manifest = Json::Read(FirstBytes(kFollow + "/installed.manifest", kLargestDocument));
    std::map<std::string, std::string> objects;
    for (const Json& file : manifest.At("files").Items()) {
      objects[file.At("path").Text()] = "objects/" + file.At("sha256").Text();
    }
    for (const Json& layer : document.At("layers").Items()) {
      const Json& notes = layer.At("annotations");
      const auto found = objects.find(notes.At("dev.edgekit.path").Text());
      if (found == objects.end() || FileSize(found->second) < 0) continue;
      const int64_t offset = Json::Read(notes.At("dev.edgekit.offset").Text()).Count();
      held[layer.At("digest").Text().substr(7)] = {found->second, static_cast<uint64_t>(offset)};
    }
  } catch (const std::exception&) {
    held.clear();  // nothing is installed yet, or it is damaged: all of it is fetched
  }
  return held;
}

// Runs the agent's command in a process of its own. Returns why it failed; empty if it did not.
std::string RunApart(const std::vector<std::string>& words, int seconds) {
  std::fflush(stdout);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    EndWithParent(parent, SIGKILL);
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open((kRun + "/said").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open((kRun + "/errors").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    const int code = RunCommand(words);
    std::fflush(stdout);
    _exit(code);
  }
  if (child < 0) throw std::runtime_error("cannot start a process");
  setpgid(child, child);
  const int64_t end = Now() + seconds * INT64_C(1000000000);
  int status = 0;
  bool is_late = false;
  while (waitpid(child, &status, WNOHANG) == 0) {
    is_late = Now() > end;
    if (is_late) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    usleep(kBetweenLooks * 1000);
  }
  kill(-child, SIGKILL);  // all processes that it started
  if (is_late) return "it did not end within " + std::to_string(seconds) + " s";
  if (WIFSIGNALED(status)) return "it was ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) == 0) return "";
  const std::string errors = FirstBytes(kRun + "/errors", kLongestReason);
  return "it failed: " + errors.substr(0, errors.find('\n'));
}

}  // namespace

std::string FolderOfModel(const std::string& model) {
  static const std::string kSafe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const auto fits = [](char c, const char* more) {
    return kSafe.find(c) != std::string::npos || (c != '\0' && std::strchr(more, c) != nullptr);
  };
  std::string plain;
  bool is_plain = !model.empty() && model.size() <= kLongestName && fits(model[0], "_");
  for (const char c : model) {
    if (fits(c, "._-")) {
      plain += c;
    } else {
      is_plain = false;
      if (plain.empty() || plain.back() != '\1') plain += '\1';  // one hyphen for all
    }
  }
  if (is_plain) return model;
  std::replace(plain.begin(), plain.end(), '\1', '-');
  const size_t begin = plain.find_first_not_of(".-"), last = plain.find_last_not_of(".-");
  plain = begin == std::string::npos ? "" : plain.substr(begin, last - begin + 1).substr(0, 48);
  return (plain.empty() ? "model" : plain) + "-" + Sha256Of(model).substr(0, 8);
}

Installation::Installation(const Signed& bundle, const std::string& manifest)
    : manifest_(Json::Read(manifest)), layers_(bundle.layers) {
  digest_ = bundle.statement.At("manifest").Text();
  model_ = manifest_.At("model").At("name").Text();
  board_ = manifest_.At("board").At("name").Text();
  if (board_ != bundle.statement.At("board").Text()) {
    throw std::runtime_error("it was built for another board than it is signed for");
  }
  bool has_library = false;
  for (const Json& entry : manifest_.At("files").Items()) {
    BundleFile file{entry.At("path").Text(), entry.At("sha256").Text(), entry.At("role").Text(),
                    static_cast<uint64_t>(entry.At("size").Count()), ""};
    if (!IsSha256(file.sha256)) throw std::runtime_error("its manifest has no hashes");
    if (file.role == "library") {
      if (has_library) throw std::runtime_error("it has two libraries");
      has_library = true;
      file.name = "model.so";
    } else if (file.role == "shared-library") {
      if (!IsPlain(file.path) || file.path == "model.so") {
        throw std::runtime_error("it names a library that is not beside the model's");
      }
      file.name = file.path;
    } else if (file.role != "reference-input" && file.role != "reference-output") {
      continue;
    }
    files_.push_back(std::move(file));
  }
  if (!has_library) throw std::runtime_error("it holds no library for a Linux board");
  for (const Json& runner : manifest_.At("runners").Items()) {
    if (runner.At("built").Text() != "host") {
      throw BundleFailed("it has a part that a board's compiler makes: deploy it over SSH");
    }
  }
  for (const char* key : {"inputs", "outputs"}) {
    for (const Json& entry : manifest_.At(key).Items()) {
      const Json* varying = entry.At("spec").Find("varying");
      if (varying != nullptr && !varying->Items().empty()) {
        throw BundleFailed("its sizes vary, and its reference vectors run from a host alone");
      }
    }
  }
}

std::vector<Layer> Installation::PartsOf(const BundleFile& file) const {
  std::vector<Layer> own;
  for (const Layer& layer : layers_) {
    if (layer.path == file.path) own.push_back(layer);
  }
  std::sort(own.begin(), own.end(),
            [](const Layer& a, const Layer& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  bool fits = true;
  for (const Layer& layer : own) {
    fits = fits && layer.offset == end && layer.size > 0;
    end += layer.size;
  }
  if (own.empty() || !fits || end != file.size) return {{file.path, 0, file.size, file.sha256}};
  return own;
}

uint64_t Installation::Fetch(const Server& server) const {
  if (!IsFolder(kParts)) MakeFolder(kParts);
  const std::map<std::string, Source> held = Installed();
  std::vector<Layer> missing;
  uint64_t received = 0, needed = 0;
  for (const BundleFile& file : files_) {
    if (!file.name.empty() && Holds("objects/" + file.sha256, file.sha256, file.size)) continue;
    for (const Layer& part : PartsOf(file)) {
      needed += file.name.empty() ? 0 : part.size;  // once more, in the library
      if (Holds(kParts + part.sha256, part.sha256, part.size)) continue;
      needed += part.size;
      missing.push_back(part);
    }
  }
  struct statvfs disk;
  if (needed > 0 && statvfs(".", &disk) == 0 &&
      static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize < needed + kSpare) {
    throw std::runtime_error("the disk is full: the version needs " + std::to_string(needed) +
                             " bytes");
  }
  for (const Layer& part : missing) {
    const std::string path = kParts + part.sha256, copy = path + ".copy";
    if (Holds(path, part.sha256, part.size)) continue;  // two files share it
    const auto found = held.find(part.sha256);
    if (found != held.end()) {
      unlink(copy.c_str());
      Append(found->second.path, found->second.offset, part.size, copy);
      if (Holds(copy, part.sha256, part.size) && std::rename(copy.c_str(), path.c_str()) == 0) {
        continue;
      }
      unlink(copy.c_str());
    }
    server.Blob(part.sha256, part.size, path);
    received += part.size;
  }
  return received;
}

void Installation::Write(const BundleFile& file, const std::string& path) const {
  const std::string part = path + ".part";
  unlink(part.c_str());
  for (const Layer& layer : PartsOf(file)) Append(kParts + layer.sha256, 0, layer.size, part);
  if (!Holds(part, file.sha256, file.size)) {
    unlink(part.c_str());
    throw std::runtime_error(file.path + " is not the file that was signed");
  }
  Sync(part);
  if (std::rename(part.c_str(), path.c_str()) != 0) CannotWrite(path);
}

void Installation::Place() const {
  const std::string folder = "models/" + digest_, fresh = folder + ".follow";
  RemoveFolder(fresh);
  MakeFolder(fresh);
  for (const BundleFile& file : files_) {
    if (file.name.empty()) continue;
    const std::string object = "objects/" + file.sha256, place = fresh + "/" + file.name;
    if (!Holds(object, file.sha256, file.size)) Write(file, object);
    if (link(object.c_str(), place.c_str()) == 0) continue;
    Append(object, 0, file.size, place);  // a file system without links
    Sync(place);
  }
  Sync("objects");
  Sync(fresh);
  bool is_there = IsFolder(folder);
  for (const BundleFile& file : files_) {
    if (file.name.empty() || !is_there) continue;
    is_there = Holds(folder + "/" + file.name, file.sha256, file.size);
  }
  if (is_there) {  // an application may use it
    RemoveFolder(fresh);
    return;
  }
  RemoveFolder(folder);
  if (std::rename(fresh.c_str(), folder.c_str()) != 0) CannotWrite(folder);
  Sync("models");
}

const BundleFile& Installation::FileAt(const std::string& path) const {
  for (const BundleFile& file : files_) {
    if (file.path == path) return file;
  }
  throw std::runtime_error("its manifest lacks a file that its reference vectors name");
}

int64_t Installation::Verify(int seconds) const {
  char root[PATH_MAX];
  if (getcwd(root, sizeof root) == nullptr) throw std::runtime_error("cannot find the folder");
  const std::string here(root);
  RemoveFolder(kRun);
  MakeFolder(kRun);
  const std::vector<Json>& vectors = manifest_.At("vectors").Items();
  std::vector<std::string> words = {"run", here + "/models/" + digest_ + "/model.so"};
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::string sample = kRun + "/sample-" + std::to_string(i);
    MakeFolder(sample);
    words.push_back(here + "/" + sample);
    const std::vector<Json>& inputs = vectors[i].At("inputs").Items();
    for (size_t k = 0; k < inputs.size(); ++k) {
      Write(FileAt(inputs[k].Text()), sample + "/input-" + std::to_string(k) + ".npy");
    }
  }
  const std::string failed = RunApart(words, seconds);
  if (!failed.empty()) throw BundleFailed("the reference run: " + failed);
  std::vector<int64_t> times;
  std::ifstream said(kRun + "/said");
  for (std::string line; std::getline(said, line);) {
    if (line.rfind("{\"sample\"", 0) == 0) times.push_back(Json::Read(line).At("nanoseconds").Count());
  }
  if (times.size() != vectors.size()) throw BundleFailed("the reference run ended early");

  const std::vector<Json>& outputs = manifest_.At("outputs").Items();
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::string sample = kRun + "/sample-" + std::to_string(i);
    const std::vector<Json>& wanted = vectors[i].At("outputs").Items();
    for (size_t k = 0; k < wanted.size(); ++k) {
      const std::string number = std::to_string(k) + ".npy";
      Write(FileAt(wanted[k].At("file").Text()), sample + "/expected-" + number);
      const std::string difference =
          Difference(ReadNpy(sample + "/expected-" + number), ReadNpy(sample + "/output-" + number),
                     outputs.at(k).At("spec"), wanted[k].At("leeway"));
      if (!difference.empty()) {
        throw BundleFailed("the vector " + vectors[i].At("name").Text() + ": " + difference);
      }
    }
  }
  RemoveFolder(kRun);
  return Median(times);
}

std::string Installation::Record(int64_t nanoseconds) const {
  Object files;
  for (const BundleFile& file : files_) {
    if (!file.name.empty()) files.Text(file.name, file.sha256);
  }
  return Object()
      .Int("schema", 1)
      .Text("model", model_)
      .Text("digest", digest_)
      .Raw("files", files.Str())
      .Raw("deployed", "null")
      .Text("edgekit", EDGEKIT_AGENT_VERSION)
      .Text("board", board_)
      .Flag("verified", true)
      .Real("median", static_cast<double>(nanoseconds) / 1e9)
      .Raw("inputs", "[]")
      .Str();
}

void Installation::Clean() const {
  for (const std::string& name : NamesIn(kParts)) {
    const bool is_shared = std::any_of(files_.begin(), files_.end(), [&](const BundleFile& file) {
      return file.name.empty() && file.sha256 == name;
    });
    if (!is_shared) unlink((kParts + name).c_str());
  }
}

}  // namespace edgekit
