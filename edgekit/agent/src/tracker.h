// The connection to TVM's RPC tracker, which hands this device out.
#pragma once

#include <string>

#include "net.h"

namespace edgekit {

struct TrackerAddress {
  std::string host;
  int port = 0;
  bool dials = false;  // the tracker's connection comes to a port of ours
  std::string key;
  std::string reported_host;  // the address for clients; empty: this connection's

  bool is_none() const { return port == 0 && !dials; }
};

class Tracker {
 public:
  // Throws if no tracker answers on the connection.
  Tracker(Socket connection, const TrackerAddress& address, int device_port);

  // Offers one session to the client that presents the returned key.
  std::string Offer();
  // Tells whether the last offer was taken, used or not. Throws if the tracker is gone.
  bool Taken();

 private:
  std::string Ask(const std::string& json);

  TrackerAddress address_;
  int device_port_;
  Socket socket_;
  std::string offered_;
};

}  // namespace edgekit
