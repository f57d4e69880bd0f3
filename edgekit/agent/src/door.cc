#include "door.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "json.h"
#include "owner.h"

namespace edgekit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = 16;  // further ones wait in the kernel
constexpr int kMostAtOnce = 256;     // further ones wait for the next turn of the loop
constexpr auto kBetweenTelling = std::chrono::seconds(30);
constexpr useconds_t kAfterFailure = 10'000;
constexpr uid_t kRoot = 0;

}  // namespace

bool Door::Wait(int milliseconds) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(milliseconds);
  for (int accepted = 0; accepted < kMostAtOnce; ++accepted) {
    const auto left = deadline - Clock::now();
    const bool over = left <= Clock::duration::zero();
    pollfd watched = {listener_.fd(), POLLIN, 0};
    const int wait = static_cast<int>(
        std::chrono::ceil<std::chrono::milliseconds>(left).count());
    const int ready = poll(&watched, 1, over || !waiting_.empty() ? 0 : wait);
    if (ready <= 0 || waiting_.size() >= kMostWaiting) return !waiting_.empty();
    AcceptOne();
  }
  return !waiting_.empty();
}

Socket Door::Take() {
  Socket first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

void Door::Close() {
  waiting_.clear();
  listener_.Close();
}

void Door::AcceptOne() {
  Socket connection(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.open()) {
    usleep(kAfterFailure);  // its peer has gone, or too many files are open
    return;
  }
  std::string why;
  const std::optional<uid_t> owner = PeerOwner(connection.fd(), &why);
  if (owner && (*owner == kRoot || *owner == geteuid())) {
    waiting_.push_back(std::move(connection));
  } else if (owner) {
    const uid_t user = geteuid();
    const std::string own = user == kRoot ? "" : "user " + std::to_string(user) + " and ";
    TurnedAway("a connection of user " + std::to_string(*owner) + " to port " +
               std::to_string(port()) + " was refused: it is for " + own + "root only");
  } else if (!why.empty()) {
    TurnedAway("a connection to port " + std::to_string(port()) + " was refused: " + why);
  }
}

void Door::TurnedAway(const std::string& reason) {
  const auto now = Clock::now();
  if (now < silent_until_) {
    ++untold_;
    return;
  }
  silent_until_ = now + kBetweenTelling;
  const std::string more = " (and " + std::to_string(untold_) + " more before it)";
  Say(Object().Text("state", "turned away").Text("reason", untold_ > 0 ? reason + more : reason));
  untold_ = 0;
}

}  // namespace edgekit
