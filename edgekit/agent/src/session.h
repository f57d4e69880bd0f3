// One RPC session in a process of its own, so that a crash ends only the session.
#pragma once

#include <signal.h>

#include <optional>
#include <string>

#include "door.h"
#include "net.h"

namespace edgekit {

struct Client {
  Socket socket;
  double timeout_seconds;  // 0: as long as the client likes
};

// Greets a client that just connected; empty if it lacks the key.
std::optional<Client> Greet(Socket socket, const std::string& key, const std::string& device_key);

// Serves until the client leaves, its time is up, its process dies or `stop` is set; says how it
// ended. Meanwhile the door goes on turning others away; the session's process has no part in it.
std::string ServeSession(const Client& client, const std::string& workspace, Door& door,
                         const volatile sig_atomic_t& stop);

}  // namespace edgekit
