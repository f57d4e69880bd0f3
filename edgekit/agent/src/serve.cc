// serve: TVM's RPC protocol, direct or through a tracker, one client at a time.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "commands.h"
#include "json.h"
#include "parent.h"
#include "session.h"
#include "tracker.h"

namespace edgekit {
namespace {

constexpr int kMillisecondsBetweenPings = 1000;
constexpr int kPingsUntilOfferIsRenewed = 6;
constexpr int kLongestWaitForTracker = 5;

volatile sig_atomic_t g_stop = 0;

void OnSignal(int) { g_stop = 1; }

// Keeps an offer open at the tracker, through the tracker's restarts.
class Offers {
 public:
  Offers(TrackerAddress address, int port) : address_(std::move(address)), port_(port) {}

  // Whoever connects next has to present this; empty while there is no tracker to tell.
  const std::string& Key() {
    if (address_.port == 0) return address_.key;
    if (!tracker_) Register();
    return key_;
  }

  void Renew() { key_.clear(); }

  // Once a second while nobody connects.
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
    if (address_.port == 0 || !tracker_ || !key_.empty()) return;
    try {
      Offer();
    } catch (const std::runtime_error& error) {
      Lost(error.what());
    }
  }

 private:
  void Register() {
    try {
      tracker_.emplace(address_, port_);
      Offer();
      Say(Object().Text("state", "registered").Text("key", address_.key));
      wait_ = 0;
    } catch (const std::runtime_error& error) {
      Lost(error.what());
    }
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
    sleep(static_cast<unsigned>(wait_));
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
  // TVM's RPC has no authentication: nothing but loopback unless somebody insists.
  std::string host = arguments.Text("--host", "127.0.0.1");
  int port = static_cast<int>(arguments.Number("--port", 0));
  TrackerAddress tracker = ParseTracker(arguments.Text("--tracker", ""));
  tracker.key = arguments.Text("--key", "");
  tracker.reported_host = arguments.Text("--custom-addr", "");
  std::string workspace = arguments.Text("--workspace", "/tmp");
  int reported_port = static_cast<int>(arguments.Number("--custom-port", 0));
  bool end_with_parent = arguments.Flag("--end-with-parent");
  arguments.Rest(0,
                 "serve [--host H] [--port P] [--key K] [--tracker HOST:PORT] [--custom-addr A] "
                 "[--custom-port P] [--workspace DIR] [--end-with-parent]");
  HandleSignals(end_with_parent);
  Socket listener = Socket::Listen(host, port);
  Say(Object().Text("state", "listening").Int("port", listener.port()));
  Offers offers(tracker, reported_port ? reported_port : listener.port());
  while (!g_stop) {
    offers.OfferIfNeeded();
    const std::string key = offers.Key();
    if (tracker.port != 0 && key.empty()) continue;
    if (!listener.Readable(kMillisecondsBetweenPings)) {
      offers.Tick();
      continue;
    }
    try {
      std::optional<Client> client = Greet(listener.Accept(), key, tracker.key);
      if (!client) continue;
      // The offer tells sessions apart that follow each other closely.
      Say(Object().Text("state", "in use").Text("offer", key));
      std::string ending = ServeSession(*client, workspace, g_stop);
      Say(Object().Text("state", "free").Text("session", ending));
      offers.Renew();
    } catch (const std::runtime_error& error) {
      Say(Object().Text("state", "refused").Text("reason", error.what()));
    }
  }
  return 0;
}

}  // namespace edgekit
