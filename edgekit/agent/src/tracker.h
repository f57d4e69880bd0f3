// The connection to TVM's RPC tracker, which hands this device out.
#pragma once

#include <string>

#include "net.h"

namespace edgekit {

struct TrackerAddress {
  std::string host;
  int port = 0;
  bool dials = false;  // its connection is brought to a port of ours
  std::string key;
  std::string reported_host;  // what clients are told to connect to; empty: where we come from

  bool is_none() const { return port == 0 && !dials; }
};

class Tracker {
 public:
  // Throws where no tracker answers on the connection.
  Tracker(Socket connection, const TrackerAddress& address, int device_port);

  // Offers one session to whoever presents the returned key.
  std::string Offer();
  // Whether the offer made last was taken, though maybe not used yet. Throws if the tracker is gone.
  bool Taken();

 private:
  std::string Ask(const std::string& json);

  TrackerAddress address_;
  int device_port_;
  Socket socket_;
  std::string offered_;
};

}  // namespace edgekit
