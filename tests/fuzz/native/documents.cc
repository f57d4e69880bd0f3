// The agent's reader of what a registry holds: JSON, signed documents, rollouts.
#include <cstdint>
#include <stdexcept>
#include <string>

#include "json_reader.h"
#include "signed_documents.h"

namespace {

// The public half of the key that signs the seeds: tests/fuzz/seeds.py.
constexpr unsigned char kKey[] = {0x03, 0xa1, 0x07, 0xbf, 0xf3, 0xce, 0x10, 0xbe,
                                  0x1d, 0x70, 0xdd, 0x18, 0xe7, 0x4b, 0xc0, 0x99,
                                  0x67, 0xe4, 0xd6, 0x30, 0x9b, 0xa5, 0x0d, 0x5f,
                                  0x1d, 0xdc, 0x86, 0x64, 0x12, 0x55, 0x31, 0xb8};

template <typename Doing>
void Try(const Doing& doing) {
  try {
    doing();
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string key(reinterpret_cast<const char*>(kKey), sizeof kKey);
  Try([&] { edgekit::ReadSigned(text, key, "bundle"); });
  Try([&] { edgekit::VersionFor(edgekit::ReadSigned(text, key, "rollout").statement, "board-1"); });
  Try([&] {  // what is damaged is not signed
    const edgekit::Json document = edgekit::Json::Read(text);
    const std::string& said = document.At("annotations").At("dev.edgekit.statement").Text();
    edgekit::VersionFor(edgekit::Json::Read(said), "board-1");
  });
  Try([&] { edgekit::ReadKey(text); });
  return 0;
}
