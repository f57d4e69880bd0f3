// The log and the deployment records on a device. edgekit's shell scripts write the same before the
// agent is installed (device_log.py, versions.py).
#pragma once

#include <string>

namespace edgekit {

// Adds an entry to the log, a JSON object without the clock. Never fails.
void AddToLog(const std::string& line);

// Records another deployment of the current version; nothing else changes. Returns false and writes
// nothing if the version is not current, or if older versions must be removed.
bool RecordAgain(const std::string& model, const std::string& digest, long keep,
                 const std::string& record);

}  // namespace edgekit
