// run LIBRARY SAMPLE...: reads each SAMPLE/input-N.npy, writes SAMPLE/output-N.npy.
#include "commands.h"
#include "json.h"
#include "model.h"
#include "npy.h"

namespace edgekit {

int Run(Arguments arguments) {
  int threads = static_cast<int>(arguments.Number("--threads", 0));
  auto rest = arguments.Rest(2, "run [--threads N] LIBRARY SAMPLE...");
  Say(Object().Text("phase", "loading"));
  std::unique_ptr<Model> model = Model::Load(rest[0], threads);
  Say(Object()
          .Text("phase", "running")
          .Int("load_nanoseconds", model->load_nanoseconds())
          .Int("threads", model->threads()));
  for (size_t i = 1; i < rest.size(); ++i) {
    model->Take(ReadSample(rest[i]));
    int64_t started = Now();
    model->Run();
    int64_t nanoseconds = Now() - started;
    Tensors outputs = model->Outputs();
    for (size_t k = 0; k < outputs.size(); ++k) {
      WriteNpy(rest[i] + "/output-" + std::to_string(k) + ".npy", outputs[k]);
    }
    Say(Object()
            .Text("sample", rest[i])
            .Int("nanoseconds", nanoseconds)
            .Int("outputs", static_cast<int64_t>(outputs.size())));
  }
  return 0;
}

}  // namespace edgekit
