// Verifies Ed25519 signatures, as RFC 8032 defines them. Nothing in it is secret.
#pragma once

#include <string>

namespace edgekit {

// `key` has 32 bytes, `signature` 64; false for any other.
bool Verifies(const std::string& key, const std::string& signature, const std::string& message);

}  // namespace edgekit
