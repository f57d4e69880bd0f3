#include "owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace edgekit {
namespace {

constexpr int kSecondsToAnswer = 1;
constexpr int kLooksAtTables = 2;  // a read may miss a row while other rows come and go

// An address in IPv6's form; one of IPv4 is mapped.
struct End {
  in6_addr address;
  uint16_t port;

  bool operator==(const End& other) const {
    return port == other.port && std::memcmp(&address, &other.address, sizeof address) == 0;
  }
  bool is_4() const { return IN6_IS_ADDR_V4MAPPED(&address); }
};

struct Row {
  uid_t uid;
  uint64_t inode;  // 0 once no process has the socket; the user beside it is not its owner then
};

in6_addr Mapped(const void* four_bytes) {
  in6_addr address = {};
  address.s6_addr[10] = address.s6_addr[11] = 0xff;
  std::memcpy(address.s6_addr + 12, four_bytes, 4);
  return address;
}

bool EndOf(const sockaddr_storage& from, End* end) {
  if (from.ss_family == AF_INET) {
    const auto& found = reinterpret_cast<const sockaddr_in&>(from);
    *end = {Mapped(&found.sin_addr), ntohs(found.sin_port)};
    return true;
  }
  const auto& found = reinterpret_cast<const sockaddr_in6&>(from);
  *end = {found.sin6_addr, ntohs(found.sin6_port)};
  return from.ss_family == AF_INET6;
}

void Write(const End& end, __be32* address, __be16* port) {
  const size_t skipped = end.is_4() ? 12 : 0;
  std::memcpy(address, end.address.s6_addr + skipped, sizeof end.address - skipped);
  *port = htons(end.port);
}

End Read(bool is_4, const __be32* address, __be16 port) {
  End end = {};
  if (is_4) end.address = Mapped(address);
  if (!is_4) std::memcpy(&end.address, address, sizeof end.address);
  end.port = ntohs(port);
  return end;
}

// Looks one socket up by its ends, at the same cost however many there are. A kernel without
// sock_diag reports every socket as missing.
std::optional<Row> FromNetlink(const End& peer, const End& own) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  message.request.sdiag_family = peer.is_4() ? AF_INET : AF_INET6;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = ~0u;
  inet_diag_sockid& id = message.request.id;
  Write(peer, id.idiag_src, &id.idiag_sport);
  Write(own, id.idiag_dst, &id.idiag_dport);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return std::nullopt;
  const timeval limit = {kSecondsToAnswer, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  alignas(nlmsghdr) char answer[8192];
  ssize_t size = -1;
  if (send(fd, &message, sizeof message, 0) == sizeof message) {
    size = recv(fd, answer, sizeof answer, 0);
  }
  close(fd);
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return std::nullopt;
  }
  const auto* found = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  const bool is_4 = found->idiag_family == AF_INET;
  // The kernel answers with a listener if it finds no connection.
  if (!(Read(is_4, found->id.idiag_src, found->id.idiag_sport) == peer) ||
      !(Read(is_4, found->id.idiag_dst, found->id.idiag_dport) == own)) {
    return std::nullopt;
  }
  return Row{found->idiag_uid, found->idiag_inode};
}

bool Parse(const char* digits, unsigned port, End* end) {
  uint32_t words[4] = {};
  const size_t count = std::strlen(digits) / 8;
  if (count != 1 && count != 4) return false;
  for (size_t i = 0; i < count; ++i) {
    if (std::sscanf(digits + 8 * i, "%8" SCNx32, &words[i]) != 1) return false;
  }
  if (count == 1) end->address = Mapped(words);
  if (count == 4) std::memcpy(&end->address, words, sizeof end->address);
  end->port = static_cast<uint16_t>(port);
  return true;
}

std::optional<Row> FromTable(std::istream& table, const End& peer, const End& own) {
  for (std::string line; std::getline(table, line);) {
    char digits[2][33];
    unsigned ports[2], uid;
    uint64_t inode;
    if (std::sscanf(line.c_str(),
                    " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %*x %*x:%*x %*x:%*x %*x %u %*d %" SCNu64,
                    digits[0], &ports[0], digits[1], &ports[1], &uid, &inode) != 6) {
      continue;
    }
    End ends[2];
    if (Parse(digits[0], ports[0], &ends[0]) && Parse(digits[1], ports[1], &ends[1]) &&
        ends[0] == peer && ends[1] == own) {
      return Row{uid, inode};
    }
  }
  return std::nullopt;
}

std::optional<Row> FromTables(const End& peer, const End& own, std::string* why) {
  for (int look = 0; look < kLooksAtTables; ++look) {
    for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream table(name);
      if (!table && std::strcmp(name, "/proc/net/tcp") == 0) {
        *why = "this system has neither sock_diag nor /proc/net/tcp, which say its user";
        return std::nullopt;
      }
      if (auto row = FromTable(table, peer, own)) return row;
    }
  }
  return std::nullopt;
}

// The kernel shows one number for all users that a user namespace lacks.
bool IsNobodyInParticular(uid_t uid) {
  uid_t overflow = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  uint64_t first = 1, outside = 1, count = 0;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  const bool has_all = first == 0 && outside == 0 && count == 0xffffffff;
  return uid == overflow && !has_all;
}

}  // namespace

std::optional<uid_t> PeerOwner(int fd, std::string* why) {
  sockaddr_storage addresses[2] = {};
  socklen_t sizes[2] = {sizeof addresses[0], sizeof addresses[1]};
  End peer, own;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&addresses[0]), &sizes[0]) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&addresses[1]), &sizes[1]) != 0 ||
      !EndOf(addresses[0], &peer) || !EndOf(addresses[1], &own)) {
    return std::nullopt;
  }
  std::optional<Row> row = FromNetlink(peer, own);
  if (!row) row = FromTables(peer, own, why);
  if (!row || row->inode == 0) return std::nullopt;
  if (IsNobodyInParticular(row->uid)) {
    *why = "its user is unknown in this user namespace";
    return std::nullopt;
  }
  return row->uid;
}

}  // namespace edgekit
