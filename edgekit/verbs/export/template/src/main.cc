// Runs a model on a Linux board, once or as a service. Change it as you like.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.h"
#include "predictor.h"
#include "samples.h"
#include "service.h"

namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "--once INPUT... [--out DIR] [--repeat N]   run once; write DIR/output-0.npy, ...\n"
    "  --watch DIR [--keep N]                     answer what appears in DIR/in, in DIR/out\n"
    "  --describe                                 what goes in and what comes out\n"
    "each with [--model FILE]; --once with [--draw FILE.png], where a picture is given;\n"
    "with [--frame yuyv:640x480], bare bytes are a camera's frame; INPUT may be /dev/video0";

struct Options {
  enum { kNothing, kOnce, kWatch, kDescribe } mode = kNothing;
  app::Paths inputs;
  fs::path folder;
  fs::path model;
  fs::path drawing;
  std::string frame_text;
  app_frame frame = {};
  size_t repeat = 1;
  size_t keep = 100;
  const app_frame* framed() const { return frame.width > 0 ? &frame : nullptr; }
};

size_t Number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  unsigned long number = std::strtoul(text.c_str(), &end, 10);
  if (text.empty() || text[0] == '-' || *end != '\0' || number < 1 || number > 1000000) {
    throw std::invalid_argument(name + " takes a number from 1 to 1000000, not " + text);
  }
  return number;
}

// The model lies in ../lib of the program, in the build folder and when installed.
fs::path InstalledModel() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / "model.so";
}

Options Parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto value = [&]() -> const std::string& {
      if (i + 1 == words.size()) throw std::invalid_argument(word + " lacks its value");
      return words[++i];
    };
    if (word == "--once") options.mode = Options::kOnce;
    else if (word == "--describe") options.mode = Options::kDescribe;
    else if (word == "--watch") options.mode = Options::kWatch, options.folder = value();
    else if (word == "--out") options.folder = value();
    else if (word == "--model") options.model = value();
    else if (word == "--draw") options.drawing = value();
    else if (word == "--frame") options.frame_text = value();
    else if (word == "--repeat") options.repeat = Number("--repeat", value());
    else if (word == "--keep") options.keep = Number("--keep", value());
    else if (word.rfind("--", 0) != 0) options.inputs.push_back(word);
    else throw std::invalid_argument("there is no option " + word);
  }
  bool takes_inputs = options.mode == Options::kOnce;
  if (options.mode == Options::kNothing || takes_inputs == options.inputs.empty()) {
    throw std::invalid_argument(std::string("usage:\n  ") + kUsage);
  }
  if (!options.frame_text.empty()) {
    const char* wrong = app_parse_frame(options.frame_text.c_str(), &options.frame);
    if (wrong != nullptr) throw std::invalid_argument(wrong);
  }
  if (!options.drawing.empty() && app_means.task == APP_NOTHING) {
    throw std::invalid_argument("[postprocess] says nothing about what the outputs mean");
  }
  if (options.model.empty()) options.model = InstalledModel();
  return options;
}

double MillisecondsSince(std::chrono::steady_clock::time_point started) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started)
      .count();
}

app::Predictor Load(const Options& options) {
  auto started = std::chrono::steady_clock::now();
  app::Predictor predictor(options.model.string());
  std::printf("%s loaded in %.2f ms\n", model::kName, MillisecondsSince(started));
  return predictor;
}

int Once(const Options& options) {
  app::Predictor predictor = Load(options);
  app::Request request = app::ReadInputs(options.inputs, options.framed());
  app::Tensors outputs;
  std::vector<double> times;
  for (size_t i = 0; i < options.repeat; ++i) {
    auto started = std::chrono::steady_clock::now();
    outputs = predictor.Run(request.inputs);
    times.push_back(MillisecondsSince(started));
  }
  std::printf("first run %.3f ms", times.front());
  if (times.size() > 1) {
    std::sort(times.begin(), times.end());
    double mean = std::accumulate(times.begin(), times.end(), 0.0) / times.size();
    std::printf(", median of %zu runs %.3f ms, mean %.3f ms", times.size(), times[times.size() / 2],
                mean);
  }
  std::puts("");
  for (size_t i = 0; i < outputs.size(); ++i) std::puts(app::Describe(i, outputs[i]).c_str());
  app::Explain(request, outputs, {stdout}, options.drawing);
  if (!options.folder.empty()) {
    fs::create_directories(options.folder);
    app::WriteOutputs(options.folder, outputs);
  }
  return 0;
}

int Watch(const Options& options) {
  app::BlockSignals();
  app::Predictor predictor = Load(options);
  app::Serve(predictor, options.folder, options.keep, options.framed());
  return 0;
}

int Describe() {
  for (const model::TensorInfo& info : model::kInputs) {
    std::printf("input %s: %s\n", info.name, app::TypeOf(info).c_str());
  }
  for (const model::TensorInfo& info : model::kOutputs) {
    std::printf("output %s: %s\n", info.name, app::TypeOf(info).c_str());
  }
  return 0;
}

// Libraries that a model offloads to may share their work by OpenMP, whose threads look for more of
// it for milliseconds before they sleep: too long where anything else runs. It reads these when the
// model is loaded.
void LetIdleThreadsSleep() {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", "1000", 1);
}

int Fail(const std::string& message, int code) {
  std::fprintf(stderr, "%s: %s\n", model::kProgram, message.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  LetIdleThreadsSleep();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that the journal gets each line at once
  Options options;
  try {
    options = Parse({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    return Fail(error.what(), 2);
  }
  try {
    switch (options.mode) {
      case Options::kOnce: return Once(options);
      case Options::kWatch: return Watch(options);
      default: return Describe();
    }
  } catch (const std::exception& error) {
    return Fail(error.what(), 1);
  }
}
