/* What a GPU adds to a program. opencl.c and cuda.c have it; no_gpu.c is for programs that have no GPU. */
#ifndef EDGEKIT_GPU_H
#define EDGEKIT_GPU_H

#include <stddef.h>

typedef struct edgekit_gpu edgekit_gpu;

/* Memory of a program: bytes of its arena or of its weights. */
typedef struct {
  int is_weight;
  size_t at, bytes;
} edgekit_span;

/* A kernel at work: how many threads in all and in a group, and the spans that it gets. */
typedef struct {
  const char *kernel;
  size_t all[3], group[3];
  unsigned arguments;
  const unsigned *argument;
} edgekit_launch;

/* The spans that a step of the CPU reads and writes. */
typedef struct {
  unsigned reads, writes;
  const unsigned *read, *written;
} edgekit_lending;

/* What the generated file of a model defines for its GPU. */
typedef struct {
  const char *source, *key; /* of the kernels, or their machine code, and its hash */
  size_t source_bytes;
  const unsigned char *weights;
  size_t weight_bytes;
  size_t shared_bytes; /* of the arena, from its start, that the device has too */
  size_t alignment;    /* of each span */
  unsigned spans, launches;
  const edgekit_span *span;
  const edgekit_launch *launch;
  edgekit_lending ends; /* its inputs are written and its outputs read by the host */
} edgekit_gpu_model;
extern const edgekit_gpu_model edgekit_on_gpu;

/* Opens the device. Returns NULL without one, for which `why` has the reason; it is empty for a program
   without a GPU. `arena` is the host's memory; where it points to NULL and the device shares memory with
   the host, it becomes that memory. */
edgekit_gpu *edgekit_gpu_open(unsigned char **arena, char *why, size_t size);
void edgekit_gpu_close(edgekit_gpu *gpu);

/* Around each run, or a step of it: the device gets the inputs, and the host the outputs. All of these
   return EDGEKIT_OK or EDGEKIT_DEVICE_FAILED, with a sentence in the `why` of the device. */
int edgekit_gpu_begin(edgekit_gpu *gpu, int with_inputs);
int edgekit_gpu_end(edgekit_gpu *gpu);

/* From here on the device's clock times kernels: what those of the last run took, in nanoseconds; 0
   where none ran, and before. */
int edgekit_gpu_measure(edgekit_gpu *gpu);
long long edgekit_gpu_nanoseconds(const edgekit_gpu *gpu);

/* Starts kernels, which run one after the other. */
int edgekit_gpu_launch(edgekit_gpu *gpu, unsigned first, unsigned count);

/* Returns the device's address of a span, for a library's region that takes tensors there; CUDA alone has it. */
void *edgekit_gpu_address(edgekit_gpu *gpu, unsigned span);

/* Around a step of the CPU: lends it memory of the device. */
int edgekit_gpu_lend(edgekit_gpu *gpu, const edgekit_lending *lent);
int edgekit_gpu_take_back(edgekit_gpu *gpu, const edgekit_lending *lent);

#endif
