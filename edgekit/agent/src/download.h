// Downloads by the board's own `curl`, which has TLS and the board's certificates.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgekit {

// The network or the server failed: a later attempt may succeed.
struct DownloadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Server {
 public:
  // `root` is a URL without a slash at its end; `config` a file with more options of curl, or empty;
  // `folder` keeps a token, where the registry hands them out.
  Server(std::string root, std::string config, std::string folder)
      : root_(std::move(root)), config_(std::move(config)), folder_(std::move(folder)) {}

  // Fetches a document into `path`. A document that `path` holds already, with its ETag in
  // `path`.etag, is not sent again.
  void Document(const std::string& place, const std::string& path, uint64_t most) const;

  // Fetches a blob into `path`, where an earlier attempt may have left its beginning.
  void Blob(const std::string& sha256, uint64_t size, const std::string& path) const;

 private:
  // Fetches a part of the repository, with a token if the registry asks for one.
  void Get(const std::string& place, std::vector<std::string> words, uint64_t largest) const;
  void TakeToken(const std::string& url) const;

  std::string root_;
  std::string config_;
  std::string folder_;
};

// Sends a file to any URL, with the options of `config`, which may be empty.
void Post(const std::string& url, const std::string& config, const std::string& path);

}  // namespace edgekit
