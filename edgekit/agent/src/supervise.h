// A command of the agent's own in a process of its own: what crashes there does not end us.
#pragma once

#include <string>
#include <vector>

#include "requests.h"

namespace edgekit {

struct Ended {
  int status = 0;                   // 128 and the signal's number where one ended it
  std::vector<std::string> errors;  // the last lines of its stderr
};

// Runs it in `folder`, and kills it when the input of `requests` ends. It needs no loading: it is
// us, forked.
Ended Supervise(const std::vector<std::string>& words, const std::string& folder,
                Requests& requests);

// Kills the command that runs at the moment, and what that started. Safe from another thread.
void EndRunning();

}  // namespace edgekit
