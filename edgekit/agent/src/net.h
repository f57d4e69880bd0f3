// Sockets with time limits. Every failure throws std::runtime_error.
#pragma once

#include <cstdint>
#include <string>

namespace edgekit {

// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  static Socket Listen(const std::string& host, int port);
  static Socket Connect(const std::string& host, int port);

  void SendAll(const std::string& data) const;
  std::string ReceiveAll(size_t size) const;
  void SendInt(int32_t value) const;
  int32_t ReceiveInt() const;
  // Detects within seconds a peer that vanished without closing.
  void WatchPeer() const;
  bool PeerLeft() const;  // the peer has closed its side, or the connection is broken
  void SetTimeout(int seconds) const;  // of each send and receive; 0 waits for ever

  int port() const;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release();
  void Close();

 private:
  int fd_;
};

}  // namespace edgekit
