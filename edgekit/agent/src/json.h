// Writes JSON, one line a message. json_reader.h reads what a registry holds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace edgekit {

inline std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out += '"';
}

// An object under construction: fields in the order in which they are added.
class Object {
 public:
  Object& Text(std::string_view key, std::string_view value) { return Raw(key, Quoted(value)); }
  Object& Int(std::string_view key, int64_t value) { return Raw(key, std::to_string(value)); }
  Object& Flag(std::string_view key, bool value) { return Raw(key, value ? "true" : "false"); }
  // What can't be measured is null, never zero: a negative value stands for unknown.
  Object& IntOrNull(std::string_view key, int64_t value) {
    return Raw(key, value < 0 ? "null" : std::to_string(value));
  }
  Object& Real(std::string_view key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", value);
    return Raw(key, digits);
  }
  Object& Raw(std::string_view key, std::string_view json) {
    body_ += body_.empty() ? "" : ", ";
    body_ += Quoted(key) + ": " + std::string(json);
    return *this;
  }
  std::string Str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

// Prints a line for the host; flushed, because the process may crash at any time.
inline void Say(const Object& message) {
  std::printf("%s\n", message.Str().c_str());
  std::fflush(stdout);
}

}  // namespace edgekit
