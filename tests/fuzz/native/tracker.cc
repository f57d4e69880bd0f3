// What the agent hears from a tracker.
#include "tracker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "net.h"

namespace {

// Both ends of a TCP connection within this process.
void Connected(int* near, int* far) {
  static sockaddr_in address = {};
  static const int listening = [] {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(fd, 8) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      abort();
    }
    return fd;
  }();
  *near = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(*near, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) abort();
  *far = accept(listening, nullptr, nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int near = -1, far = -1;
  Connected(&near, &far);
  // All of it fits into what the kernel keeps for a connection.
  if (send(far, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) abort();
  shutdown(far, SHUT_WR);
  try {
    edgekit::TrackerAddress address;
    address.key = "pi";
    edgekit::Tracker tracker(edgekit::Socket(near), address, 5000);
    tracker.Offer();
    tracker.Taken();
  } catch (const std::runtime_error&) {
  }
  close(far);
  return 0;
}
