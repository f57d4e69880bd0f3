// ncnn regions on another CPU: a program that reads them with their inputs, and writes their outputs.
#include <cstdio>
#include <vector>

#include "edgekit_ncnn.h"

extern "C" int edgekit_progress(const char*) { return 0; }

namespace {

using namespace edgekit::ncnn_net;

void read(void* data, size_t size) {
  if (size && std::fread(data, 1, size, stdin) != size) std::exit(0);
}

int32_t read_number() {
  int32_t number;
  read(&number, sizeof(number));
  return number;
}

void write(const void* data, size_t size) { std::fwrite(data, 1, size, stdout); }

std::vector<Held> read_held() {
  std::vector<Held> rows(read_number());
  for (Held& row : rows) {
    row.name = "tensor";
    row.blob = read_number();
    row.rank = read_number();
    read(row.extents, sizeof(row.extents));
    row.form = static_cast<Form>(read_number());
  }
  return rows;
}

size_t size_of(const Held& held) {
  size_t size = held.form == kFloats ? sizeof(float) : held.form == kPlace ? sizeof(int64_t) : 1;
  for (int i = 0; i < held.rank; ++i) size *= held.extents[i];
  return size;
}

void* room_for(const Held& held) { return std::aligned_alloc(64, (size_of(held) + 63) / 64 * 64); }

}  // namespace

int main() {
  for (;;) {
    std::vector<int32_t> words(read_number());
    read(words.data(), words.size() * sizeof(int32_t));
    std::vector<unsigned char> weights(read_number());
    read(weights.data(), weights.size());
    const std::vector<Held> inputs = read_held(), outputs = read_held();
    std::vector<DLTensor> tensors(inputs.size() + outputs.size());
    std::vector<DLTensor*> pointers;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool given = i < inputs.size();
      const Held& held = given ? inputs[i] : outputs[i - inputs.size()];
      tensors[i].data = room_for(held);
      tensors[i].byte_offset = 0;
      if (given) read(tensors[i].data, size_of(held));
      pointers.push_back(&tensors[i]);
    }
    std::string problem;
    try {
      const Graph graph{words.data(),  words.size() * 4,          {weights.data(), weights.size()},
                        inputs.data(), int(inputs.size()),        outputs.data(),
                        int(outputs.size()), nullptr, 0};
      Runner runner(graph, {1, true, true, true, true, false, false, false, true});
      // The second call computes results in place whose form is known from the first.
      for (int call = 0; call < 2; ++call)
        runner.run(pointers.data(), pointers.data() + inputs.size());
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const int32_t length = problem.size();
    write(&length, sizeof(length));
    write(problem.data(), problem.size());
    for (size_t i = 0; problem.empty() && i < outputs.size(); ++i)
      write(tensors[inputs.size() + i].data, size_of(outputs[i]));
    std::fflush(stdout);
    for (DLTensor& tensor : tensors) std::free(tensor.data);
  }
}
