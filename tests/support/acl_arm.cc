// ACL regions on an emulated CPU: a region with its inputs comes in, its outputs or an error go out.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "edgekit_acl.h"

namespace {

using edgekit::Blob;
using edgekit::Program;
using edgekit::acl::Runner;

bool read(void* data, size_t size) { return std::fread(data, 1, size, stdin) == size; }

void write(const void* data, size_t size) { std::fwrite(data, 1, size, stdout); }

std::string read_text() {
  int32_t size = 0;
  if (!read(&size, sizeof(size))) std::exit(0);
  std::string text(static_cast<size_t>(size), '\0');
  if (size && !read(&text[0], text.size())) std::exit(1);
  return text;
}

struct Room {
  std::vector<float> values;
  DLTensor tensor{};

  explicit Room(int64_t count) : values(static_cast<size_t>(count) + 16, 7e33f) {
    const size_t place = reinterpret_cast<uintptr_t>(values.data()) % 64;
    tensor.data = values.data() + (64 - place) / sizeof(float) % 16;
  }
};

// The outputs of a region, one after the other.
std::vector<char> answer(const std::string& text, const std::string& weights,
                         const std::string& values) {
  std::vector<const char*> lines;
  for (size_t start = 0; start < text.size(); start += std::strlen(text.c_str() + start) + 1)
    lines.push_back(text.c_str() + start);
  Room blob(static_cast<int64_t>(weights.size() / 4) + 1);
  std::memcpy(blob.tensor.data, weights.data(), weights.size());
  const Program program(
      lines.data(), lines.size(),
      Blob{static_cast<const unsigned char*>(blob.tensor.data), weights.size()});
  const auto size_of = [&](int number) {
    const edgekit::Value& value = program.values[number];
    return static_cast<size_t>(edgekit::count_of(value.extents)) * value.width;
  };
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<const DLTensor*> inputs;
  std::vector<DLTensor*> outputs;
  size_t place = 0;
  for (int number : program.inputs()) {
    rooms.emplace_back(new Room(static_cast<int64_t>(size_of(number) / 4) + 1));
    std::memcpy(rooms.back()->tensor.data, values.data() + place, size_of(number));
    place += size_of(number);
    inputs.push_back(&rooms.back()->tensor);
  }
  for (int number : program.outputs) {
    rooms.emplace_back(new Room(static_cast<int64_t>(size_of(number) / 4) + 1));
    outputs.push_back(&rooms.back()->tensor);
  }
  Runner runner(program, {1, true});
  runner.run(inputs.data(), outputs.data());
  runner.run(inputs.data(), outputs.data());
  std::vector<char> made;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const char* first = static_cast<const char*>(outputs[i]->data);
    made.insert(made.end(), first, first + size_of(program.outputs[i]));
  }
  return made;
}

}  // namespace

int main() {
  for (;;) {
    const std::string text = read_text(), weights = read_text(), values = read_text();
    std::string problem;
    std::vector<char> made;
    try {
      made = answer(text, weights, values);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const int32_t length = static_cast<int32_t>(problem.size());
    write(&length, sizeof(length));
    write(problem.data(), problem.size());
    write(made.data(), made.size());
    std::fflush(stdout);
  }
}
