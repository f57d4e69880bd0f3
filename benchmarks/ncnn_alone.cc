// ncnn and nothing else: a network from its text graph, for contenders.py.
#include <ncnn/net.h>

#include <cstring>
#include <string>

namespace {

struct Network {
  ncnn::Net net;
  std::string input;
  std::vector<std::string> outputs;
  std::vector<ncnn::Mat> made;
};

}  // namespace

extern "C" {

// `outputs` are names with a space between them; nullptr where ncnn does not take the network.
void* alone_load(const char* graph, const char* weights, const char* input, const char* outputs) {
  Network* network = new Network();
  ncnn::Option& option = network->net.opt;
  option.num_threads = 1;
  option.use_fp16_packed = option.use_fp16_storage = option.use_fp16_arithmetic = false;
  option.use_bf16_packed = option.use_bf16_storage = false;
  network->input = input;
  std::string names = outputs;
  for (size_t start = 0, end; start < names.size(); start = end + 1) {
    end = std::min(names.find(' ', start), names.size());
    network->outputs.push_back(names.substr(start, end - start));
  }
  if (network->net.load_param(graph) == 0 && network->net.load_model(weights) == 0) return network;
  delete network;
  return nullptr;
}

// Extents from the outermost to the innermost; those in front may be one.
int alone_call(void* handle, float* data, int channels, int rows, int columns) {
  Network& network = *static_cast<Network*>(handle);
  ncnn::Mat image;
  image.create(columns, rows, channels);
  const size_t plane = static_cast<size_t>(rows) * columns;
  for (int c = 0; c < channels; ++c) std::memcpy(image.channel(c), data + c * plane, plane * 4);
  ncnn::Extractor extractor = network.net.create_extractor();
  extractor.input(network.input.c_str(), image);
  network.made.resize(network.outputs.size());
  for (size_t i = 0; i < network.outputs.size(); ++i)
    if (extractor.extract(network.outputs[i].c_str(), network.made[i]) != 0) return -1;
  return 0;
}

int alone_size(void* handle, int output) {
  const ncnn::Mat& made = static_cast<Network*>(handle)->made[output];
  return made.w * made.h * made.d * made.c;
}

void alone_copy(void* handle, int output, float* data) {
  const ncnn::Mat& made = static_cast<Network*>(handle)->made[output];
  const size_t plane = static_cast<size_t>(made.w) * made.h * made.d;
  for (int c = 0; c < made.c; ++c) std::memcpy(data + c * plane, made.channel(c), plane * 4);
}
}
