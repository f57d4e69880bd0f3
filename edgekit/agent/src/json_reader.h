// Reads JSON that comes from outside: documents of a registry, and manifests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace edgekit {

// Each access throws std::runtime_error if the document holds something else.
class Json {
 public:
  static Json Read(const std::string& text);

  bool IsNull() const { return kind_ == Kind::kNull; }
  bool IsTrue() const { return kind_ == Kind::kTrue; }
  const Json* Find(const std::string& key) const;  // nullptr if the object has no such member
  const Json& At(const std::string& key) const;
  const std::string& Text() const;
  int64_t Count() const;  // a whole number from 0 to 10^15
  double Real() const;
  const std::vector<Json>& Items() const;

 private:
  enum class Kind { kNull, kFalse, kTrue, kNumber, kText, kList, kObject };
  friend class JsonParser;

  Kind kind_ = Kind::kNull;
  std::string text_;  // of a number, its digits
  std::vector<Json> items_;
  std::vector<std::string> keys_;  // of an object, one for each item
};

}  // namespace edgekit
