// Which user owns the other end of a connection between two processes of this machine.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace edgekit {

// Empty if the user is unknown. `why` is set if the system does not report it, and stays empty if
// the connection was closed or comes from another machine.
std::optional<uid_t> PeerOwner(int fd, std::string* why);

}  // namespace edgekit
