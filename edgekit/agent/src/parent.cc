#include "parent.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

namespace edgekit {
namespace {

constexpr char kParent[] = "EDGEKIT_PARENT";

}  // namespace

void EndWithParent(pid_t parent, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  if (getppid() != parent) _exit(1);
}

pid_t StartedBy() {
  const char* said = std::getenv(kParent);
  const pid_t parent = said == nullptr ? getppid() : static_cast<pid_t>(std::atol(said));
  unsetenv(kParent);  // our own children have another parent
  return parent;
}

}  // namespace edgekit
