#include "tracker.h"

#include <random>
#include <stdexcept>
#include <utility>

#include "json.h"

namespace edgekit {
namespace {

// tvm/rpc/base.py
constexpr int32_t kTrackerMagic = 0x2f271;
constexpr int kPut = 3;
constexpr int kUpdateInfo = 5;
constexpr int kPendingKeys = 7;

constexpr int kSecondsToAnswer = 10;
constexpr int32_t kLongestAnswer = 1 << 20;

std::string HostOrNull(const std::string& host) { return host.empty() ? "null" : Quoted(host); }

}  // namespace

Tracker::Tracker(Socket connection, const TrackerAddress& address, int device_port)
    : address_(address), device_port_(device_port), socket_(std::move(connection)) {
  socket_.SetTimeout(kSecondsToAnswer);
  socket_.WatchPeer();
  socket_.SendInt(kTrackerMagic);
  if (socket_.ReceiveInt() != kTrackerMagic) {
    throw std::runtime_error("what answers at the tracker's address is not TVM's RPC tracker");
  }
  std::string where = "[" + HostOrNull(address.reported_host) + ", " +
                      std::to_string(device_port) + "]";
  Ask("[" + std::to_string(kUpdateInfo) + ", {\"key\": " + Quoted("server:" + address.key) +
      ", \"addr\": " + where + "}]");
}

std::string Tracker::Offer() {
  std::random_device random;
  offered_ = address_.key + ":" + std::to_string(random()) + std::to_string(random());
  Ask("[" + std::to_string(kPut) + ", " + Quoted(address_.key) + ", [" +
      std::to_string(device_port_) + ", " + Quoted(offered_) + "], " +
      HostOrNull(address_.reported_host) + "]");
  return offered_;
}

bool Tracker::Taken() {
  return Ask("[" + std::to_string(kPendingKeys) + "]").find(Quoted(offered_)) == std::string::npos;
}

std::string Tracker::Ask(const std::string& json) {
  socket_.SendInt(static_cast<int32_t>(json.size()));
  socket_.SendAll(json);
  int32_t size = socket_.ReceiveInt();
  if (size < 0 || size > kLongestAnswer) throw std::runtime_error("the tracker's answer is damaged");
  return socket_.ReceiveAll(static_cast<size_t>(size));
}

}  // namespace edgekit
