// The agent's commands. Each returns the process's exit code and prints its results as JSON lines.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace edgekit {

// Command-line options, `--name value`, and the remaining words.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : left_(std::move(words)) {}
  std::string Text(const std::string& name, const std::string& otherwise);
  double Number(const std::string& name, double otherwise);
  bool Flag(const std::string& name);
  // Call last: an option that was not read is an error.
  std::vector<std::string> Rest(size_t at_least, const char* usage);

 private:
  std::vector<std::string> left_;
};

struct Command {
  const char* name;
  int (*run)(Arguments arguments);
};

extern const std::vector<Command> kCommands;

int Attend(Arguments arguments);
int Follow(Arguments arguments);
int Info(Arguments arguments);
int Run(Arguments arguments);
int Bench(Arguments arguments);
int Serve(Arguments arguments);
int Watch(Arguments arguments);

// Runs a command by its words; an exception is reported and becomes an exit code.
int RunCommand(std::vector<std::string> words);

}  // namespace edgekit
