// Processes that end with the process that started them, even if that one is killed.
#pragma once

#include <sys/types.h>

namespace edgekit {

// Makes the kernel send `signal` when the parent ends. Ends the process at once if the parent has
// ended already, as the kernel then sends nothing. `parent` was read before it could end.
void EndWithParent(pid_t parent, int signal);

// The number of the process that started this program, as edgekit/base/parent_process.py passes it.
pid_t StartedBy();

}  // namespace edgekit
