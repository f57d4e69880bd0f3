/* What the generated code asks its runtime for: parallel loops, and the memory of a part of a loop.
   Included once, by a pool of threads, which defines EACH_THREAD before and `launch` after. */
#ifndef EDGEKIT_SCRATCH_H
#define EDGEKIT_SCRATCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT 64

typedef struct {
  void *sync;
  int32_t parts;
} group;
typedef int (*body)(int part, group *group, void *data);

/* A stack, whose blocks are freed in the reverse order. */
static EACH_THREAD unsigned char *scratch_at;

/* Sets `*scratch` to memory, or to NULL for no bytes; false without memory. */
static int allocate_scratch(unsigned char **scratch, size_t bytes) {
  void *memory = NULL;
  if (bytes != 0 && posix_memalign(&memory, ALIGNMENT, bytes) != 0) return 0;
  *scratch = memory;
  return 1;
}

static void *take(int device, int number, uint64_t bytes, int code, int bits) {
  unsigned char *taken = scratch_at;
  (void)device, (void)number, (void)code, (void)bits;
  scratch_at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return taken;
}

static int give(int device, int number, void *block) {
  (void)device, (void)number;
  scratch_at = block;
  return 0;
}

static int launch(body run, void *data, int parts);

/* The code generator calls its runtime through these three. */
int (*__TVMBackendParallelLaunch)(body, void *, int) = launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = take;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = give;

#endif
