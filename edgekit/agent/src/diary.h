// What is written down on a device about what happens there. The same is done by edgekit's shell
// scripts where the agent is not there yet (device_log.py, versions.py).
#pragma once

#include <string>

namespace edgekit {

// An entry of the log, a JSON object without the clock. Never fails: it is only the log.
void AddToLog(const std::string& line);

// The version that is current already, deployed once more: a new record, nothing else changes.
// False where it is not current, or where older versions are to go: then nothing is written.
bool RecordAgain(const std::string& model, const std::string& digest, long keep,
                 const std::string& record);

}  // namespace edgekit
