// The log on a device. edgekit's shell scripts write the same before the agent is installed
// (device_log.py).
#pragma once

#include <string>

namespace edgekit {

// Adds an entry to the log, a JSON object without the clock. Never fails.
void AddToLog(const std::string& line);

}  // namespace edgekit
