#include "signed_documents.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ed25519.h"
#include "sha2.h"

namespace edgekit {
namespace {

constexpr char kSigned[] = "a statement about a bundle, signed by edgekit\n";
constexpr char kPrefix[] = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21";  // then a zero, the key
constexpr int64_t kAll = 10'000;
constexpr size_t kMostWaves = 100;

// Throws std::runtime_error.
std::string FromBase64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size() && text[i] != '='; ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string::npos) throw std::runtime_error("it holds no base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  return bytes;
}

std::string Digest(const Json& descriptor) {
  const std::string& digest = descriptor.At("digest").Text();
  if (digest.rfind("sha256:", 0) != 0 || !IsSha256(digest.substr(7))) {
    throw std::runtime_error("it holds no SHA-256");
  }
  return digest.substr(7);
}

std::vector<Layer> Layers(const Json& document) {
  std::vector<Layer> layers;
  const Json* found = document.Find("layers");
  if (found == nullptr) return layers;
  for (const Json& layer : found->Items()) {
    const Json* notes = layer.Find("annotations");
    const Json* path = notes == nullptr ? nullptr : notes->Find("dev.edgekit.path");
    const Json* offset = notes == nullptr ? nullptr : notes->Find("dev.edgekit.offset");
    if (path == nullptr || offset == nullptr) continue;
    const auto begin = static_cast<uint64_t>(Json::Read(offset->Text()).Count());
    const auto size = static_cast<uint64_t>(layer.At("size").Count());
    layers.push_back({path->Text(), begin, size, Digest(layer)});
  }
  return layers;
}

}  // namespace

bool IsSha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string ReadKey(const std::string& pem) {
  static const std::string kBegin = "-----BEGIN PUBLIC KEY-----", kEnd = "-----END PUBLIC KEY-----";
  const size_t begin = pem.find(kBegin), end = pem.find(kEnd);
  const std::string prefix(kPrefix, sizeof kPrefix);  // with the zero at its end
  if (begin != std::string::npos && end != std::string::npos && begin < end) {
    std::string text = pem.substr(begin + kBegin.size(), end - begin - kBegin.size());
    text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c <= ' '; }),
               text.end());
    const std::string bytes = FromBase64(text);
    if (bytes.size() == prefix.size() + 32 && bytes.rfind(prefix, 0) == 0) {
      return bytes.substr(prefix.size());
    }
  }
  throw std::runtime_error("the key is no Ed25519 public key in PEM");
}

Signed ReadSigned(const std::string& document, const std::string& key, const std::string& kind) {
  const Json read = Json::Read(document);
  const Json& notes = read.At("annotations");
  Signed found;
  found.text = notes.At("dev.edgekit.statement").Text();
  const std::string signature = FromBase64(notes.At("dev.edgekit.signature").Text());
  if (!Verifies(key, signature, kSigned + found.text)) {
    throw std::runtime_error("it is not signed by this board's key");
  }
  found.statement = Json::Read(found.text);
  if (found.statement.At("kind").Text() != kind) throw std::runtime_error("it is no " + kind);
  if (kind != "bundle") return found;
  const Json& config = read.At("config");
  const std::string& manifest = found.statement.At("manifest").Text();
  if (!IsSha256(manifest) || Digest(config) != manifest) {
    throw std::runtime_error("it names another manifest than the signed one");
  }
  found.manifest_size = static_cast<uint64_t>(config.At("size").Count());
  found.layers = Layers(read);
  return found;
}

const Json& VersionFor(const Json& rollout, const std::string& board) {
  const std::vector<Json>& waves = rollout.At("waves").Items();
  const auto wave = static_cast<size_t>(rollout.At("wave").Count());
  if (wave >= waves.size() || waves.size() > kMostWaves) throw std::runtime_error("it has no wave");
  const bool is_back = rollout.At("state").Text() == "back";
  const int64_t share = is_back ? 0 : waves[wave].Count();
  const Json& version = rollout.At("version");
  const std::string words = rollout.At("name").Text() + "\n" + rollout.At("channel").Text() + "\n" +
                            version.At("manifest").Text() + "\n" + board;
  Sha2<uint32_t> hash;
  hash.Add(words.data(), words.size());
  const std::string digest = hash.Digest();
  uint64_t place = 0;
  for (size_t i = 0; i < 8; ++i) place = place << 8 | static_cast<unsigned char>(digest[i]);
  return place % kAll < static_cast<uint64_t>(share) ? version : rollout.At("before");
}

}  // namespace edgekit
