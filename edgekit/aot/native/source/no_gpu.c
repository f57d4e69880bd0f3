/* The interface of a GPU for programs that have none. */
#include "gpu.h"

edgekit_gpu *edgekit_gpu_open(unsigned char **arena, char *why, size_t size) {
  (void)arena;
  if (size > 0) *why = '\0';
  return NULL;
}

void edgekit_gpu_close(edgekit_gpu *gpu) { (void)gpu; }

int edgekit_gpu_measure(edgekit_gpu *gpu) {
  (void)gpu;
  return 0;
}

long long edgekit_gpu_nanoseconds(const edgekit_gpu *gpu) {
  (void)gpu;
  return 0;
}

int edgekit_gpu_begin(edgekit_gpu *gpu, int with_inputs) {
  (void)gpu, (void)with_inputs;
  return 0;
}

int edgekit_gpu_end(edgekit_gpu *gpu) {
  (void)gpu;
  return 0;
}
