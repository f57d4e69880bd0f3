// serve: TVM's RPC protocol, direct or through a tracker, one client at a time.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "commands.h"
#include "door.h"
#include "json.h"
#include "parent.h"
#include "session.h"
#include "tracker.h"

namespace edgekit {
namespace {

constexpr int kMillisecondsBetweenPings = 1000;
constexpr int kPingsUntilOfferIsRenewed = 6;
constexpr int kLongestWaitForTracker = 5;
constexpr int kMillisecondsToDial = 10'000;

volatile sig_atomic_t g_stop = 0;

void OnSignal(int) { g_stop = 1; }

// Keeps an offer open at the tracker, through the tracker's restarts.
class Offers {
 public:
  Offers(TrackerAddress address, int port) : address_(std::move(address)), port_(port) {}

  // The key that the next client must present; empty without a tracker.
  const std::string& Key() {
    if (address_.is_none()) return address_.key;
    if (!tracker_) Register();
    return key_;
  }

  void Renew() { key_.clear(); }

  // Called once a second while no client connects.
  void Tick() {
    if (!tracker_ || key_.empty()) return;
    try {
      unused_ = tracker_->Taken() ? unused_ + 1 : 0;
      if (unused_ > kPingsUntilOfferIsRenewed) Offer();
    } catch (const std::runtime_error& error) {
      Lost(error.what());
    }
  }

  void OfferIfNeeded() {
    if (address_.is_none() || !tracker_ || !key_.empty()) return;
    try {
      Offer();
    } catch (const std::runtime_error& error) {
      Lost(error.what());
    }
  }

 private:
  void Register() {
    try {
      tracker_.emplace(address_.dials ? Dialled() : Socket::Connect(address_.host, address_.port), address_,
                       port_);
      Offer();
      Say(Object().Text("state", "registered").Text("key", address_.key));
      wait_ = 0;
    } catch (const std::runtime_error& error) {
      Lost(error.what());
    }
  }

  // The host brings the tracker's connection through SSH, so that no port of this machine, which
  // every user of it reaches, leads to the tracker. Our port is open only until it comes.
  Socket Dialled() {
    Door door(Socket::Listen("127.0.0.1", 0));
    Say(Object().Text("state", "wants tracker").Int("port", door.port()));
    if (!door.Wait(kMillisecondsToDial)) throw std::runtime_error("its connection did not come");
    return door.Take();
  }

  void Offer() {
    key_ = tracker_->Offer();
    unused_ = 0;
  }

  void Lost(const char* reason) {
    tracker_.reset();
    key_.clear();
    Say(Object().Text("state", "no tracker").Text("reason", reason));
    wait_ = std::min(wait_ + 1, kLongestWaitForTracker);
    if (!g_stop) sleep(static_cast<unsigned>(wait_));
  }

  TrackerAddress address_;
  int port_;
  std::optional<Tracker> tracker_;
  std::string key_;
  int unused_ = 0;
  int wait_ = 0;
};

TrackerAddress ParseTracker(const std::string& text) {
  TrackerAddress address;
  if (text.empty()) return address;
  size_t colon = text.rfind(':');
  address.host = text.substr(0, colon);
  address.port = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  if (address.port <= 0 || address.port > 65535) {
    throw std::invalid_argument("--tracker takes HOST:PORT, not " + text);
  }
  return address;
}

void HandleSignals(bool end_with_parent) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // no SA_RESTART: poll and sleep end at once
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (end_with_parent) EndWithParent(StartedBy(), SIGTERM);
}

}  // namespace

int Serve(Arguments arguments) {
  // TVM's RPC has no authentication: whatever the address, a Door admits this user and root only.
  std::string host = arguments.Text("--host", "127.0.0.1");
  int port = static_cast<int>(arguments.Number("--port", 0));
  TrackerAddress tracker = ParseTracker(arguments.Text("--tracker", ""));
  tracker.dials = arguments.Flag("--tracker-dials");
  tracker.key = arguments.Text("--key", "");
  tracker.reported_host = arguments.Text("--custom-addr", "");
  std::string workspace = arguments.Text("--workspace", "/tmp");
  int reported_port = static_cast<int>(arguments.Number("--custom-port", 0));
  bool end_with_parent = arguments.Flag("--end-with-parent");
  arguments.Rest(0,
                 "serve [--host H] [--port P] [--key K] [--tracker HOST:PORT | --tracker-dials] "
                 "[--custom-addr A] [--custom-port P] [--workspace DIR] [--end-with-parent]");
  HandleSignals(end_with_parent);
  Door door(Socket::Listen(host, port));
  Say(Object().Text("state", "listening").Int("port", door.port()));
  Offers offers(tracker, reported_port ? reported_port : door.port());
  while (!g_stop) {
    door.Wait(0);
    offers.OfferIfNeeded();
    const std::string key = offers.Key();
    if (!tracker.is_none() && key.empty()) continue;
    if (!door.Wait(kMillisecondsBetweenPings)) {
      offers.Tick();
      continue;
    }
    try {
      std::optional<Client> client = Greet(door.Take(), key, tracker.key);
      if (!client) continue;
      // The offer tells sessions apart that follow each other closely.
      Say(Object().Text("state", "in use").Text("offer", key));
      std::string ending = ServeSession(*client, workspace, door, g_stop);
      Say(Object().Text("state", "free").Text("session", ending));
      offers.Renew();
    } catch (const std::runtime_error& error) {
      Say(Object().Text("state", "refused").Text("reason", error.what()));
    }
  }
  return 0;
}

}  // namespace edgekit
