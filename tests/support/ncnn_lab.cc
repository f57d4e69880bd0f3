// ncnn regions without a compiler for each: what generated code has as constants are arguments.
#include "edgekit_ncnn.h"

namespace {

using edgekit::ncnn_net::Graph;
using edgekit::ncnn_net::Runner;
using edgekit::ncnn_net::Settings;

thread_local std::string problem;
std::string heard_last;

template <typename Action>
int guarded(Action action) {
  try {
    action();
    return 0;
  } catch (const std::exception& error) {
    problem = error.what();
    return -1;
  }
}

}  // namespace

extern "C" {

int edgekit_progress(const char* text) {
  heard_last = text;
  return 1;
}

const char* lab_heard() { return heard_last.c_str(); }

int lab_new(const Graph* graph, const Settings* settings, Runner** made) {
  return guarded([&] { *made = new Runner(*graph, *settings); });
}

int lab_run(Runner* runner, const DLTensor* const* inputs, DLTensor* const* outputs) {
  return guarded([&] { runner->run(inputs, outputs); });
}

uint64_t lab_copied(Runner* runner) { return runner->copied(); }

void lab_free(Runner* runner) { delete runner; }

const char* lab_problem() { return problem.c_str(); }
}
