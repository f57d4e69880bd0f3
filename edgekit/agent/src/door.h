// A listening socket that serves its own user and root only: TVM's RPC has no passwords, and every
// user of a machine reaches its loopback.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include "net.h"

namespace edgekit {

class Door {
 public:
  explicit Door(Socket listener) : listener_(std::move(listener)) {}

  // Tells whether a connection of this user or root waits, or comes within so long. All others are
  // closed before a byte is read, and reported now and then.
  bool Wait(int milliseconds);
  // Accepts the first waiting connection.
  Socket Take();
  void Close();

  int port() const { return listener_.port(); }

 private:
  void AcceptOne();
  void TurnedAway(const std::string& reason);

  Socket listener_;
  std::deque<Socket> waiting_;
  std::chrono::steady_clock::time_point silent_until_;
  int untold_ = 0;
};

}  // namespace edgekit
