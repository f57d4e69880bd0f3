// Which user owns the other end of a connection between two processes of this machine.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace edgekit {

// Nothing where that is unknown. `why` is set where the system does not say it; it stays empty where
// the connection was closed or comes from another machine.
std::optional<uid_t> PeerOwner(int fd, std::string* why);

}  // namespace edgekit
