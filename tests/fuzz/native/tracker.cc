// What the agent hears from a tracker.
#include "tracker.h"

#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>
#include <thread>

#include "net.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static edgekit::Socket listening = edgekit::Socket::Listen("127.0.0.1", 0);
  const std::string answer(reinterpret_cast<const char*>(data), size);
  std::thread server([&] {
    try {
      edgekit::Socket client = listening.Accept();
      client.SendAll(answer);
      shutdown(client.fd(), SHUT_WR);
      while (true) client.ReceiveAll(1);
    } catch (const std::runtime_error&) {
    }
  });
  try {
    edgekit::TrackerAddress address;
    address.host = "127.0.0.1";
    address.port = listening.port();
    address.key = "pi";
    edgekit::Tracker tracker(address, 5000);
    tracker.Offer();
    tracker.Taken();
  } catch (const std::runtime_error&) {
  }
  server.join();
  return 0;
}
