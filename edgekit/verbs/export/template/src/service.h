// The model as a service: files in, files out.
#pragma once

#include <cstddef>
#include <filesystem>

#include "picture.h"
#include "predictor.h"

namespace app {

// Answers requests in FOLDER/in until SIGTERM or SIGINT, which BlockSignals must have blocked.
//
// A request is a file, such as a.npy; for a model with several inputs, the files a.input-0.npy,
// a.input-1.npy, ..., of which the first comes last. Write a file under a name that begins with a
// dot, then rename it: the service takes a file as soon as it sees it.
//
// The answer is the folder FOLDER/out/REQUEST with output-0.npy, ..., or with error.txt, and appears
// whole. Where [postprocess] says what outputs mean, found.txt has it. The last `keep` answers are kept. A request on which the program died is not tried again.
void Serve(Predictor& predictor, const std::filesystem::path& folder, size_t keep,
           const app_frame* frame = nullptr);

// Call it before any thread starts: later threads inherit the blocked signals.
void BlockSignals();

}  // namespace app
