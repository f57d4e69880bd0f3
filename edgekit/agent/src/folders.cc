#include "folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace edgekit {
namespace {

constexpr int kOpenAtOnce = 16;

int RemoveOne(const char* path, const struct stat*, int, FTW*) { return std::remove(path); }

}  // namespace

int64_t FileSize(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return -1;
  return status.st_size;
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* opened = opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(opened);
  return names;
}

std::string FirstBytes(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

void MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) {
    throw std::runtime_error("cannot make " + path + ": " + std::strerror(errno));
  }
}

void WriteWhole(const std::string& path, const std::string& text, bool durable) {
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file && durable) Sync(temporary);
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    throw std::runtime_error("cannot write " + path + ": " + reason);
  }
}

void Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

void RemoveFolder(const std::string& folder) {
  if (nftw(folder.c_str(), RemoveOne, kOpenAtOnce, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
    std::fprintf(stderr, "edgekit-agent: cannot remove %s: %s\n", folder.c_str(),
                 std::strerror(errno));
  }
}

}  // namespace edgekit
