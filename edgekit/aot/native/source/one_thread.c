/* The interface of a pool of threads for a system that has one thread: the caller runs each loop. */
#include "threads.h"

#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT 64

typedef struct {
  void *sync;
  int32_t parts;
} group;
typedef int (*body)(int part, group *group, void *data);

struct edgekit_pool {
  unsigned char *scratch;
};

static unsigned char *scratch_at;

edgekit_pool *edgekit_pool_create(int threads, size_t scratch) {
  (void)threads;
  edgekit_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL || scratch == 0) return pool;
  void *memory = NULL;
  if (posix_memalign(&memory, ALIGNMENT, scratch) != 0) {
    free(pool);
    return NULL;
  }
  pool->scratch = memory;
  return pool;
}

void edgekit_pool_destroy(edgekit_pool *pool) {
  if (pool == NULL) return;
  free(pool->scratch);
  free(pool);
}

int edgekit_pool_threads(const edgekit_pool *pool) {
  (void)pool;
  return 1;
}

void edgekit_pool_enter(edgekit_pool *pool) { scratch_at = pool == NULL ? NULL : pool->scratch; }

static int launch(body run, void *data, int parts) {
  group alone = {NULL, 1};
  (void)parts;
  return run(0, &alone, data);
}

/* The memory of a part of a loop: a stack, whose blocks are freed in the reverse order. */
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

/* The code generator calls its runtime through these three. */
int (*__TVMBackendParallelLaunch)(body, void *, int) = launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = take;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = give;
