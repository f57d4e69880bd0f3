/* A pool of threads for parallel loops. A loop is a function that is called once for each part; the
   caller takes parts as the others do. Between loops a thread spins for some microseconds and then
   sleeps, because the next kernel usually follows at once. */
#define _GNU_SOURCE
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define EACH_THREAD __thread
#include "scratch.h"

#define SPINS 20000

typedef struct {
  pthread_t thread;
  edgekit_pool *pool;
  unsigned char *scratch;
  int number;
} worker;

struct edgekit_pool {
  int threads;
  size_t scratch_bytes;
  unsigned char *scratch; /* the caller's own */
  worker *workers;
  int started;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  /* The loop under way. `round` changes last, so that who sees it sees the rest. */
  body run;
  void *data;
  atomic_uint round;
  atomic_int running;
  atomic_int failed;
  atomic_int asleep;
  atomic_int ends;
};

static __thread edgekit_pool *entered;
static __thread int inside; /* this thread runs a part of a loop */

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
  __asm__ volatile("yield");
#endif
}

static void run_part(edgekit_pool *pool, int part) {
  group group = {NULL, pool->threads};
  int status = pool->run(part, &group, pool->data);
  if (status != 0) atomic_store(&pool->failed, status);
}

static unsigned wait_for_round(edgekit_pool *pool, unsigned seen) {
  for (int spin = 0; spin < SPINS; ++spin) {
    if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen) return seen + 1;
    pause_briefly();
  }
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add(&pool->asleep, 1);
  while (atomic_load(&pool->round) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
  atomic_fetch_sub(&pool->asleep, 1);
  pthread_mutex_unlock(&pool->lock);
  return seen + 1;
}

static void *serve(void *given) {
  worker *self = given;
  edgekit_pool *pool = self->pool;
  unsigned round = 0;
  inside = 1;
  for (;;) {
    round = wait_for_round(pool, round);
    if (atomic_load(&pool->ends)) return NULL;
    scratch_at = self->scratch;
    run_part(pool, self->number);
    if (atomic_fetch_sub(&pool->running, 1) == 1) {
      pthread_mutex_lock(&pool->lock);
      pthread_cond_signal(&pool->done);
      pthread_mutex_unlock(&pool->lock);
    }
  }
}

/* The cores that this process may run on: threads that share a core would wait for each other. */
static int cores(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  long found = sysconf(_SC_NPROCESSORS_ONLN);
  return found < 1 ? 1 : (int)found;
}

edgekit_pool *edgekit_pool_create(int threads, size_t scratch) {
  edgekit_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  pool->threads = threads > 0 ? threads : cores();
  pool->scratch_bytes = scratch;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->done, NULL);
  pool->workers = calloc((size_t)pool->threads, sizeof *pool->workers);
  if (pool->workers == NULL || !allocate_scratch(&pool->scratch, scratch * (size_t)pool->threads)) {
    edgekit_pool_destroy(pool);
    return NULL;
  }
  for (int k = 1; k < pool->threads; ++k) {
    worker *one = &pool->workers[k];
    one->pool = pool;
    one->number = k;
    one->scratch = scratch == 0 ? NULL : pool->scratch + scratch * (size_t)k;
    if (pthread_create(&one->thread, NULL, serve, one) != 0) {
      pool->threads = k; /* a process may be allowed no more of them */
      break;
    }
    pool->started = k;
  }
  return pool;
}

void edgekit_pool_destroy(edgekit_pool *pool) {
  if (pool == NULL) return;
  atomic_store(&pool->ends, 1);
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add(&pool->round, 1);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int k = 1; k <= pool->started; ++k) pthread_join(pool->workers[k].thread, NULL);
  pthread_cond_destroy(&pool->wake);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->lock);
  free(pool->scratch);
  free(pool->workers);
  free(pool);
}

int edgekit_pool_threads(const edgekit_pool *pool) { return pool->threads; }

void edgekit_pool_enter(edgekit_pool *pool) {
  entered = pool;
  scratch_at = pool == NULL ? NULL : pool->scratch;
}

static int launch(body run, void *data, int parts) {
  edgekit_pool *pool = entered;
  (void)parts;
  if (inside || pool == NULL || pool->threads == 1) {
    group alone = {NULL, 1};
    return run(0, &alone, data);
  }
  pool->run = run;
  pool->data = data;
  atomic_store(&pool->failed, 0);
  atomic_store(&pool->running, pool->threads - 1);
  atomic_fetch_add_explicit(&pool->round, 1, memory_order_seq_cst);
  if (atomic_load(&pool->asleep) != 0) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
  }
  inside = 1;
  run_part(pool, 0);
  inside = 0;
  for (int spin = 0; spin < SPINS && atomic_load(&pool->running) != 0; ++spin) pause_briefly();
  if (atomic_load(&pool->running) != 0) {
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->running) != 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
  }
  return atomic_load(&pool->failed);
}
