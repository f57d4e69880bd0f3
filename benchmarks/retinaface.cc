// Runs a model from C++ on one thread and prints the mean of its runs in milliseconds.
//
//   retinaface LIBRARY INPUT RUNS

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "edgekit.hpp"

int main(int, char** words) {
  edgekit::Model model(words[1], 1);
  std::ifstream file(words[2], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const edgekit::Array image(model.inputs.at(0).shape, bytes.data(), bytes.size());
  const int runs = std::atoi(words[3]);
  double total = 0;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    model.Run({image});
    total += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  std::printf("%.6f\n", total / runs);
}
