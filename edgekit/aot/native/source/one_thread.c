/* The interface of a pool of threads for a system that has one thread: the caller runs each loop. */
#include "threads.h"

#define EACH_THREAD
#include "scratch.h"

struct edgekit_pool {
  unsigned char *scratch;
};

edgekit_pool *edgekit_pool_create(int threads, size_t scratch) {
  (void)threads;
  edgekit_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL || allocate_scratch(&pool->scratch, scratch)) return pool;
  free(pool);
  return NULL;
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
