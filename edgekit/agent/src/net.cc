#include "net.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace edgekit {
namespace {

[[noreturn]] void Throw(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::shared_ptr<addrinfo> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) throw std::runtime_error("no address for " + host + ": " + gai_strerror(code));
  return {found, freeaddrinfo};
}

void Set(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) Throw("cannot set up a socket");
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.Release();
  }
  return *this;
}

int Socket::Release() {
  int fd = fd_;
  fd_ = -1;
  return fd;
}

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Socket Socket::Listen(const std::string& host, int port) {
  auto address = Resolve(host, port);
  Socket made(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.open()) Throw("cannot make a socket");
  Set(made.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(made.fd_, address->ai_addr, address->ai_addrlen) != 0 || listen(made.fd_, 8) != 0) {
    Throw("cannot listen on " + host + ":" + std::to_string(port));
  }
  return made;
}

Socket Socket::Connect(const std::string& host, int port) {
  auto address = Resolve(host, port);
  Socket made(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.open()) Throw("cannot make a socket");
  if (connect(made.fd_, address->ai_addr, address->ai_addrlen) != 0) {
    Throw("cannot connect to " + host + ":" + std::to_string(port));
  }
  return made;
}

void Socket::SendAll(const std::string& data) const {
  for (size_t done = 0; done < data.size();) {
    ssize_t sent = send(fd_, data.data() + done, data.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) Throw("cannot send");
    done += static_cast<size_t>(sent);
  }
}

std::string Socket::ReceiveAll(size_t size) const {
  std::string data(size, '\0');
  for (size_t done = 0; done < size;) {
    ssize_t got = recv(fd_, data.data() + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw std::runtime_error("the other side closed the connection");
    if (got < 0) Throw("cannot receive");
    done += static_cast<size_t>(got);
  }
  return data;
}

void Socket::SendInt(int32_t value) const {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  SendAll(bytes);
}

int32_t Socket::ReceiveInt() const {
  int32_t value;
  std::memcpy(&value, ReceiveAll(sizeof value).data(), sizeof value);
  return value;
}

void Socket::WatchPeer() const {
  Set(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd_, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  Set(fd_, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  Set(fd_, IPPROTO_TCP, TCP_KEEPCNT, 3);
  Set(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool Socket::PeerLeft() const {
  pollfd look = {fd_, POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Socket::SetTimeout(int seconds) const {
  timeval limit = {seconds, 0};
  if (setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
    Throw("cannot set up a socket");
  }
}

int Socket::port() const {
  sockaddr_storage address;
  socklen_t length = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) Throw("no port");
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace edgekit
