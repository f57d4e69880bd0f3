// Facts and state of this machine. A value that can't be read is negative or empty, never zero.
#pragma once

#include <cstdint>
#include <string>

#include "json.h"

namespace edgekit {

std::string FirstLine(const std::string& path);
int64_t StatusBytes(const char* key);  // of this process: "VmRSS", "VmHWM"
bool ResetPeakMemory();
int UsableCores();

// The fields of edgekit's HostState.
Object HostState();

}  // namespace edgekit
