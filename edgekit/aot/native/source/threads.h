/* The threads of a program: they wait for the parallel loops of its kernels. */
#ifndef EDGEKIT_THREADS_H
#define EDGEKIT_THREADS_H

#include <stddef.h>

typedef struct edgekit_pool edgekit_pool;

/* `threads` count the caller; each other one gets `scratch` bytes. NULL without memory. */
edgekit_pool *edgekit_pool_create(int threads, size_t scratch);
void edgekit_pool_destroy(edgekit_pool *pool);
int edgekit_pool_threads(const edgekit_pool *pool);

/* Makes parallel loops of the calling thread run on this pool; NULL ends it. */
void edgekit_pool_enter(edgekit_pool *pool);

#endif
