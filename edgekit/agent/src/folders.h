// Files and folders of this machine, as edgekit uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace edgekit {

int64_t FileSize(const std::string& path);  // -1 if there is no such file
bool IsFolder(const std::string& path);
std::vector<std::string> NamesIn(const std::string& folder);
std::string FirstBytes(const std::string& path, size_t most);  // empty if it can't be read

// These throw std::runtime_error if the system refuses.
void MakeFolder(const std::string& path);
// By renaming, and on the disk before that if `durable`.
void WriteWhole(const std::string& path, const std::string& text, bool durable = false);

void Sync(const std::string& path);  // without an error: some file systems cannot

void RemoveFolder(const std::string& folder);  // reports failures on stderr

}  // namespace edgekit
