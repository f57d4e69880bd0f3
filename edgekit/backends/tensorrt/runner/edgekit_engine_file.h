// Files that are written completely or not at all: engines and timing caches, with their keys. This
// file needs no header of NVIDIA's.
//
//   edgekit-engine 1\n
//   <bytes of the key> <bytes of the content> <hash of both, 16 hex digits>\n
//   key, content
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace edgekit {
namespace tensorrt {

// FNV-1a: against damage, not against malice. Only the user can write into the user's cache.
inline uint64_t hash_of(const void* data, size_t size, uint64_t hash = 1469598103934665603ull) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  return hash;
}

inline std::string hex_of(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// All that decides whether an engine fits: where one of these differs, it is another engine.
struct EngineKey {
  std::string region;      // a hash of what it computes, of its weights and options
  uint64_t model_hash;     // of the ONNX itself
  int tensorrt;            // the version of the library that is loaded, 80502
  std::string gpu;
  int sm_major, sm_minor;
  std::string precision;
  int64_t workspace_bytes;
  int dla_core;            // -1 is the GPU
  int builder_level;

  std::string device() const {
    return "tensorrt " + std::to_string(tensorrt) + "\ngpu " + gpu + "\nsm " +
           std::to_string(sm_major) + "." + std::to_string(sm_minor) + "\n";
  }

  std::string text() const {
    return "region " + region + "\nmodel " + hex_of(model_hash) + "\n" + device() + "precision " +
           precision + "\nworkspace " + std::to_string(workspace_bytes) + "\ndla " +
           std::to_string(dla_core) + "\nlevel " + std::to_string(builder_level) + "\n";
  }

  std::string file() const {
    const std::string all = text();
    return region + "-" + hex_of(hash_of(all.data(), all.size())) + ".engine";
  }

  // How long each kernel takes on this GPU holds for all regions.
  std::string timing_file() const {
    const std::string all = device();
    return "timing-" + hex_of(hash_of(all.data(), all.size())) + ".cache";
  }
};

// Empty where nothing can be kept: no home, and no variable says where. A relative path counts for
// nothing: engines are code, and the current folder may be a stranger's.
inline std::string cache_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr || value[0] != '/' ? "" : value);
  };
  if (!set("EDGEKIT_TENSORRT_CACHE").empty()) return set("EDGEKIT_TENSORRT_CACHE");
  if (!set("XDG_CACHE_HOME").empty()) return set("XDG_CACHE_HOME") + "/edgekit/tensorrt";
  return set("HOME").empty() ? "" : set("HOME") + "/.cache/edgekit/tensorrt";
}

inline bool make_folders(const std::string& folder) {
  for (size_t end = folder.find('/', 1); end != std::string::npos; end = folder.find('/', end + 1))
    ::mkdir(folder.substr(0, end).c_str(), 0700);
  ::mkdir(folder.c_str(), 0700);
  struct stat found;
  return ::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// Engines are code: from another user's file nothing is loaded.
inline bool is_ours(int file, size_t* size) {
  struct stat found;
  if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return false;
  *size = static_cast<size_t>(found.st_size);
  return found.st_uid == ::geteuid() || found.st_uid == 0;
}

inline bool read_all(int file, std::string* content) {
  size_t done = 0;
  while (done < content->size()) {
    const ssize_t got = ::read(file, &(*content)[done], content->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

inline const char* head_line() { return "edgekit-engine 1\n"; }

enum class Found { kNothing, kDamaged, kOther, kWhole };

// `content` receives the content for this key; it stays unchanged unless the file is complete.
inline Found read_engine_file(const std::string& path, const std::string& key,
                              std::string* content) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return Found::kNothing;
  size_t size = 0;
  const bool ours = is_ours(file, &size);
  std::string all(ours ? size : 0, '\0');
  const bool whole = ours && read_all(file, &all);
  ::close(file);
  if (!ours) return Found::kOther;
  const size_t head = std::strlen(head_line());
  if (!whole || all.compare(0, head, head_line()) != 0) return Found::kDamaged;
  const size_t line = all.find('\n', head);
  unsigned long long key_size = 0, content_size = 0, hash = 0;
  if (line == std::string::npos ||
      std::sscanf(all.substr(head, line - head).c_str(), "%llu %llu %llx", &key_size,
                  &content_size, &hash) != 3)
    return Found::kDamaged;
  const size_t body = line + 1, left = all.size() - body;
  if (key_size > left || content_size != left - key_size) return Found::kDamaged;
  if (hash_of(all.data() + body, left) != hash) return Found::kDamaged;
  if (all.compare(body, key_size, key) != 0) return Found::kOther;
  content->assign(all, body + key_size, content_size);
  return Found::kWhole;
}

// Write under another name first, so that readers see the old file or the new one. Return whether
// the file was written; a full or read-only disk only costs the next start some time.
inline bool write_engine_file(const std::string& folder, const std::string& name,
                              const std::string& key, const void* content, size_t size) {
  if (folder.empty() || !make_folders(folder)) return false;
  uint64_t hash = hash_of(key.data(), key.size());
  hash = hash_of(content, size, hash);
  const std::string head = head_line() + std::to_string(key.size()) + " " + std::to_string(size) +
                           " " + hex_of(hash) + "\n" + key;
  std::string part = folder + "/." + name + ".XXXXXX";
  const int file = ::mkostemp(&part[0], O_CLOEXEC);
  if (file < 0) return false;
  const auto put = [file](const char* bytes, size_t count) {
    while (count > 0) {
      const ssize_t done = ::write(file, bytes, count);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      bytes += done;
      count -= static_cast<size_t>(done);
    }
    return true;
  };
  bool whole = put(head.data(), head.size()) && put(static_cast<const char*>(content), size);
  whole = ::fsync(file) == 0 && whole;
  whole = ::close(file) == 0 && whole;
  whole = whole && std::rename(part.c_str(), (folder + "/" + name).c_str()) == 0;
  if (!whole) ::unlink(part.c_str());
  return whole;
}

}  // namespace tensorrt
}  // namespace edgekit
