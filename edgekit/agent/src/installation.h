// A bundle's files on their way from a registry onto this board: what it lacks is fetched, all of it
// is verified, and the reference vectors run before the version is current.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "download.h"
#include "json_reader.h"
#include "signed_documents.h"

namespace edgekit {

// The folder of what a follower keeps, in the agent's root.
inline const std::string kFollow = "follow";

// The bundle or this board's run of it is wrong: it is not tried again until the rollout changes.
struct BundleFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct BundleFile {
  std::string path, sha256, role;
  uint64_t size = 0;
  std::string name;  // of code, in the version's folder
};

class Installation {
 public:
  // `manifest` is the text that the signed statement names.
  Installation(const Signed& bundle, const std::string& manifest);

  const std::string& digest() const { return digest_; }
  const std::string& model() const { return model_; }
  const std::string& board() const { return board_; }

  // Fetches the parts that neither an earlier attempt nor the installed version holds. Returns how
  // many bytes came from the registry.
  uint64_t Fetch(const Server& server) const;

  // Makes the version's folder. The device must be held.
  void Place() const;

  // Runs the reference vectors; returns the median in nanoseconds. Throws BundleFailed.
  int64_t Verify(int seconds) const;

  // The record of versions.cc, as edgekit/devices/linux/version_records.py reads it.
  std::string Record(int64_t nanoseconds) const;

  // Keeps what the next version may share, and removes the rest.
  void Clean() const;

 private:
  std::vector<Layer> PartsOf(const BundleFile& file) const;
  void Write(const BundleFile& file, const std::string& path) const;
  const BundleFile& FileAt(const std::string& path) const;

  Json manifest_;
  std::vector<Layer> layers_;
  std::vector<BundleFile> files_;  // those that a board needs
  std::string digest_, model_, board_;
};

// The name of a model's folder in `deployments`, as edgekit/devices/linux/version_records.py has it.
std::string FolderOfModel(const std::string& model);

}  // namespace edgekit
