// The model as a service: files in, files out.
#pragma once

#include <cstddef>
#include <filesystem>

#include "predictor.h"

namespace app {

// Answers what appears in FOLDER/in until SIGTERM or SIGINT, which BlockSignals must have blocked.
//
// A request is a file, such as a.npy; for a model with several inputs, the files a.input-0.npy,
// a.input-1.npy, ..., of which the first comes last. Write under a name that begins with a dot, and
// rename: the service takes what it sees at once.
//
// The answer is the folder FOLDER/out/REQUEST with output-0.npy, ..., or with error.txt, and appears
// whole. The last `keep` answers are kept. A request on which the program died is not tried again.
void Serve(Predictor& predictor, const std::filesystem::path& folder, size_t keep);

// Call it first: threads that are made later have them blocked, too.
void BlockSignals();

}  // namespace app
