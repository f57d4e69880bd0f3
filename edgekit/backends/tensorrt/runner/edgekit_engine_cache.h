// An engine from the cache, or built and cached. `Engine` is the type that the maker's `load`
// returns: this file needs no header of NVIDIA's.
#pragma once

#include <string>

#include "edgekit_engine_file.h"

namespace edgekit {
namespace tensorrt {

// `Maker` has
//   std::string build();                  the engine's bytes; throws where there will be none
//   Engine load(const std::string&);      false as a condition where these bytes don't fit here
//   [[noreturn]] void fail(const std::string& doing);    says why, as far as that is known
//   void note(const std::string& text);   to the user: building takes seconds to many minutes
template <typename Engine, typename Maker>
Engine cached_engine(const EngineKey& key, const std::string& folder, Maker& maker) {
  const std::string path = folder + "/" + key.file(), text = key.text();
  std::string bytes;
  Found found = folder.empty() ? Found::kNothing : read_engine_file(path, text, &bytes);
  if (found == Found::kWhole) {
    Engine engine = maker.load(bytes);
    if (engine) return engine;
    found = Found::kDamaged;
  }
  if (found != Found::kNothing) maker.note("the engine " + path + " does not fit, and is built again");
  maker.note("TensorRT builds the engine of region " + key.region +
             ": once, and it may take minutes");
  bytes = maker.build();
  if (!write_engine_file(folder, key.file(), text, bytes.data(), bytes.size()))
    maker.note("the engine can't be kept in " + (folder.empty() ? "a cache" : folder) +
               ": the next start builds it again");
  Engine engine = maker.load(bytes);
  if (!engine) maker.fail("load the engine that it has just built");
  return engine;
}

}  // namespace tensorrt
}  // namespace edgekit
