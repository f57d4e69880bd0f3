// bench LIBRARY SAMPLE: times inferences one by one, then, on request, kernel by kernel.
#include <sys/resource.h>

#include <algorithm>

#include "commands.h"
#include "json.h"
#include "machine.h"
#include "model.h"
#include "npy.h"

namespace edgekit {
namespace {

constexpr int64_t kBetweenProgress = 200'000'000;
constexpr size_t kMostSamples = 100'000;

int64_t Preemptions() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : -1;
}

// Seldom enough not to disturb what is measured.
class Progress {
 public:
  void Report(const char* phase, size_t done) {
    if (Now() < next_) return;
    next_ = Now() + kBetweenProgress;
    Say(Object().Text("phase", phase).Int("progress", static_cast<int64_t>(done)));
  }

 private:
  int64_t next_ = Now() + kBetweenProgress;
};

}  // namespace

int Bench(Arguments arguments) {
  auto warmup = static_cast<size_t>(arguments.Number("--warmup", 10));
  auto runs = static_cast<size_t>(arguments.Number("--runs", 30));
  double seconds = arguments.Number("--seconds", 3);
  int threads = static_cast<int>(arguments.Number("--threads", 0));
  auto profiled = static_cast<size_t>(arguments.Number("--profile", 0));
  auto traced = static_cast<size_t>(arguments.Number("--trace", 0));
  auto rest = arguments.Rest(2, "bench [--warmup N --runs N --seconds S --threads N --profile N "
                                "--trace N] LIBRARY SAMPLE");
  Say(Object().Text("phase", "loading"));
  Tensors inputs = ReadSample(rest[1]);
  bool memory_known = ResetPeakMemory();
  int64_t memory_before = memory_known ? StatusBytes("VmRSS") : -1;
  std::unique_ptr<Model> model = Model::Load(rest[0], threads);
  model->Take(inputs);
  Object host_before = HostState();
  Progress progress;
  for (size_t done = 0; done < warmup; ++done) {
    model->Run();
    progress.Report("warm-up", done + 1);
  }
  std::vector<int64_t> samples;
  samples.reserve(std::min(kMostSamples, std::max<size_t>(runs, 1024)));
  int64_t memory_peak = -1;
  int64_t preemptions = Preemptions();
  int64_t enough = Now() + static_cast<int64_t>(seconds * 1e9);
  while (samples.size() < kMostSamples) {
    int64_t started = Now();
    model->Run();
    samples.push_back(Now() - started);
    // Later, the samples themselves would count as the model's memory.
    if (samples.size() == 1 && memory_known) memory_peak = StatusBytes("VmHWM");
    if (samples.size() >= runs && Now() >= enough) break;
    progress.Report("measuring", samples.size());
  }
  preemptions = Preemptions() - preemptions;
  Object host_after = HostState();
  std::string list;
  for (int64_t sample : samples) list += (list.empty() ? "" : ",") + std::to_string(sample);
  Object answer;
  answer.Raw("nanoseconds", "[" + list + "]")
      .Int("load_nanoseconds", model->load_nanoseconds())
      .Int("warmup", static_cast<int64_t>(warmup))
      .Int("threads", model->threads())
      .IntOrNull("memory_before", memory_before)
      .IntOrNull("memory_peak", memory_peak)
      .IntOrNull("preemptions", preemptions)
      .Raw("host_before", host_before.Str())
      .Raw("host_after", host_after.Str());
  if (profiled > 0) {
    Profiled found = model->Profile(
        profiled, traced, [&](size_t done) { progress.Report("profiling", done); });
    answer.Int("profiled", static_cast<int64_t>(profiled))
        .Raw("kernels", found.kernels)
        .Raw("timeline", found.timeline);
  }
  Say(answer);
  return 0;
}

}  // namespace edgekit
