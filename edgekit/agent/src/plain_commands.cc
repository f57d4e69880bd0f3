// The commands of edgekit-agent.
#include "commands.h"

namespace edgekit {

const std::vector<Command> kCommands = {
    {"attend", Attend}, {"info", Info}, {"run", Run}, {"bench", Bench}, {"watch", Watch},
    {"follow", Follow},
};

}  // namespace edgekit
