// oneDNN regions without a compiler for each: what generated code has as constants are arguments.
#include "edgekit_onednn.h"

namespace {

using edgekit::Blob;
using edgekit::Program;
using edgekit::onednn::Runner;

thread_local std::string problem;

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

int lab_new(const char* const* lines, size_t count, const unsigned char* weights, size_t size,
            int threads, bool bf16, bool only_finite, Runner** made) {
  return guarded([&] {
    *made = new Runner(Program(lines, count, Blob{weights, size}), {threads, bf16, only_finite});
  });
}

int lab_run(Runner* runner, const DLTensor* const* inputs, DLTensor* const* outputs) {
  return guarded([&] { runner->run(inputs, outputs); });
}

void lab_free(Runner* runner) { delete runner; }

const char* lab_problem() { return problem.c_str(); }
}
