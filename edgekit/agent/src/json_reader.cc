#include "json_reader.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace edgekit {

class JsonParser {
 public:
  explicit JsonParser(const std::string& text) : at_(text.data()), end_(at_ + text.size()) {}

  Json Whole() {
    Json value = Value(0);
    Skip();
    if (at_ != end_) Fail();
    return value;
  }

 private:
  static constexpr int kDeepest = 64;
  static constexpr size_t kLongestNumber = 40;

  [[noreturn]] static void Fail() { throw std::runtime_error("it is not readable as JSON"); }

  void Skip() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_) != nullptr && *at_ != '\0') ++at_;
  }

  bool Take(char wanted) {
    Skip();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool TakeWord(const char* word) {
    const size_t size = std::strlen(word);
    if (static_cast<size_t>(end_ - at_) < size || std::memcmp(at_, word, size) != 0) return false;
    at_ += size;
    return true;
  }

  Json Value(int depth) {
    if (depth > kDeepest) Fail();
    Json value;
    Skip();
    if (Take('{')) {
      value.kind_ = Json::Kind::kObject;
      if (Take('}')) return value;
      do {
        Skip();
        std::string key = Text();
        if (value.Find(key) != nullptr || !Take(':')) Fail();
        value.items_.push_back(Value(depth + 1));
        value.keys_.push_back(std::move(key));
      } while (Take(','));
      if (!Take('}')) Fail();
    } else if (Take('[')) {
      value.kind_ = Json::Kind::kList;
      if (Take(']')) return value;
      do {
        value.items_.push_back(Value(depth + 1));
      } while (Take(','));
      if (!Take(']')) Fail();
    } else if (at_ != end_ && *at_ == '"') {
      value.kind_ = Json::Kind::kText;
      value.text_ = Text();
    } else if (TakeWord("true")) {
      value.kind_ = Json::Kind::kTrue;
    } else if (TakeWord("false")) {
      value.kind_ = Json::Kind::kFalse;
    } else if (!TakeWord("null")) {
      value.kind_ = Json::Kind::kNumber;
      while (at_ != end_ && *at_ != '\0' && std::strchr("+-.0123456789eE", *at_) != nullptr) {
        value.text_ += *at_++;
      }
      if (value.text_.empty() || value.text_.size() > kLongestNumber) Fail();
    }
    return value;
  }

  std::string Text() {
    if (at_ == end_ || *at_++ != '"') Fail();
    std::string text;
    while (at_ != end_ && *at_ != '"') {
      const char byte = *at_++;
      if (static_cast<unsigned char>(byte) < 0x20) Fail();
      if (byte != '\\') {
        text += byte;
        continue;
      }
      if (at_ == end_) Fail();
      static constexpr char kNames[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
      const char name = *at_++;
      const char* found = name == '\0' ? nullptr : std::strchr(kNames, name);
      if (found != nullptr) {
        text += kMeanings[found - kNames];
      } else if (name == 'u') {
        AddPoint(Point(), &text);
      } else {
        Fail();
      }
    }
    if (at_ == end_) Fail();
    ++at_;
    return text;
  }

  uint32_t Point() {
    const uint32_t first = Unit();
    if (first < 0xd800 || first > 0xdfff) return first;
    if (first > 0xdbff || !TakeWord("\\u")) Fail();
    const uint32_t second = Unit();
    if (second < 0xdc00 || second > 0xdfff) Fail();
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }

  uint32_t Unit() {
    if (end_ - at_ < 4) Fail();
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      const char byte = *at_++;
      const char digits[] = "0123456789abcdef";
      const char low = byte >= 'A' && byte <= 'F' ? static_cast<char>(byte + 32) : byte;
      const char* found = low == '\0' ? nullptr : std::strchr(digits, low);
      if (found == nullptr) Fail();
      unit = unit << 4 | static_cast<uint32_t>(found - digits);
    }
    return unit;
  }

  static void AddPoint(uint32_t point, std::string* text) {  // as UTF-8
    if (point < 0x80) {
      *text += static_cast<char>(point);
      return;
    }
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    *text += static_cast<char>((0xff00 >> (more + 1) & 0xff) | point >> 6 * more);
    for (int i = more - 1; i >= 0; --i) {
      *text += static_cast<char>(0x80 | (point >> 6 * i & 0x3f));
    }
  }

  const char* at_;
  const char* end_;
};

Json Json::Read(const std::string& text) { return JsonParser(text).Whole(); }

const Json* Json::Find(const std::string& key) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return &items_[i];
  }
  return nullptr;
}

const Json& Json::At(const std::string& key) const {
  const Json* found = Find(key);
  if (found == nullptr) throw std::runtime_error("it lacks " + key);
  return *found;
}

const std::string& Json::Text() const {
  if (kind_ != Kind::kText) throw std::runtime_error("it holds something else where a text belongs");
  return text_;
}

int64_t Json::Count() const {
  if (kind_ != Kind::kNumber || text_.size() > 15 ||
      text_.find_first_not_of("0123456789") != std::string::npos) {
    throw std::runtime_error("it holds something else where a count belongs");
  }
  return std::strtoll(text_.c_str(), nullptr, 10);
}

double Json::Real() const {
  if (kind_ != Kind::kNumber) throw std::runtime_error("it lacks a number");
  char* end = nullptr;
  const double value = std::strtod(text_.c_str(), &end);
  if (*end != '\0') throw std::runtime_error("it holds a damaged number");
  return value;
}

const std::vector<Json>& Json::Items() const {
  if (kind_ != Kind::kList) throw std::runtime_error("it holds something else where a list belongs");
  return items_;
}

}  // namespace edgekit
