// Processes that end with the process that started them, even where that one is killed.
#pragma once

#include <sys/types.h>

namespace edgekit {

// Has the kernel send `signal` when the parent ends. Ends the process at once where the parent,
// whose number was read before it could end, has ended already: the kernel sends nothing then.
void EndWithParent(pid_t parent, int signal);

// The number of the process that started this program, as edgekit/base/parent_process.py passes it.
pid_t StartedBy();

}  // namespace edgekit
