// An agent command in a process of its own, so that a crash does not end the agent.
#pragma once

#include <string>
#include <vector>

#include "requests.h"

namespace edgekit {

struct Ended {
  int status = 0;                   // 128 and the signal's number where one ended it
  std::vector<std::string> errors;  // the last lines of its stderr
};

// Runs it in `folder` as a fork, which loads nothing, and kills it when the input of `requests`
// ends.
Ended Supervise(const std::vector<std::string>& words, const std::string& folder,
                Requests& requests);

// Kills the running command and its children. Safe from another thread.
void EndRunning();

}  // namespace edgekit
