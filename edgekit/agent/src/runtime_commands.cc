// The commands of edgekit-agent-tvm.
#include "commands.h"

namespace edgekit {

const std::vector<Command> kCommands = {{"run", Run}, {"bench", Bench}, {"serve", Serve}};

}  // namespace edgekit
