// Documents of a registry that carry a signed statement: bundles and rollouts.
// edgekit/registry/statement.py and rollout.py write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json_reader.h"

namespace edgekit {

struct Layer {
  std::string path;
  uint64_t offset = 0, size = 0;
  std::string sha256;
};

struct Signed {
  Json statement;
  std::string text;  // of the statement
  uint64_t manifest_size = 0;
  std::vector<Layer> layers;  // as the registry says: what they make up is signed, they are not
};

// The 32 bytes of a public key in PEM. Throws std::runtime_error.
std::string ReadKey(const std::string& pem);

bool IsSha256(const std::string& text);

// Throws std::runtime_error unless the key signed the document's statement, of this kind.
Signed ReadSigned(const std::string& document, const std::string& key, const std::string& kind);

// What a rollout gives to a board of this name: the member `version` or `before` of its statement;
// null if there is nothing for it yet.
const Json& VersionFor(const Json& rollout, const std::string& board);

}  // namespace edgekit
