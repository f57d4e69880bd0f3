// The versions of models on a device, and which one is current. Only the agent writes their records;
// edgekit/devices/linux/versions.py describes the files and reads them.
#pragma once

#include <string>
#include <vector>

namespace edgekit {

struct Recorded {
  std::string before;                // digest of the version that was current, or "none"
  std::vector<std::string> removed;  // digests of removed older versions
};

// Makes a version the current one, and removes all but the latest `keep`. Throws std::runtime_error
// if the system refuses; the current version is unchanged then.
Recorded RecordVersion(const std::string& model, const std::string& digest, size_t keep,
                       const std::string& record);

// Makes a recorded version the current one again.
void MakeCurrent(const std::string& model, const std::string& digest);

}  // namespace edgekit
