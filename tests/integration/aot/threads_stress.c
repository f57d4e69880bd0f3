/* Three pools at once, each with loops of 1000 numbers, scratch memory and pauses; then one more. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "threads.h"

#define NUMBERS 1000
#define LOOPS 200

typedef struct {
  void *sync;
  int32_t parts;
} group;
extern int (*__TVMBackendParallelLaunch)(int (*)(int, group *, void *), void *, int);
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void *);

/* Adds one to the part's numbers, by way of two blocks of scratch that must not be another's. */
static int add_one(int part, group *all, void *data) {
  int *numbers = data, each = (NUMBERS + all->parts - 1) / all->parts;
  int *first = __TVMBackendAllocWorkspace(1, 0, 256, 0, 8);
  int *second = __TVMBackendAllocWorkspace(1, 0, 100, 0, 8);
  memset(first, part, 256);
  memset(second, part, 100);
  for (int k = part * each; k < (part + 1) * each && k < NUMBERS; ++k)
    numbers[k] += 1 + (first[0] - first[1]) + (second[0] - second[1]);
  __TVMBackendFreeWorkspace(1, 0, second);
  __TVMBackendFreeWorkspace(1, 0, first);
  return 0;
}

static int fail_in_one_part(int part, group *all, void *data) {
  (void)data;
  return part == all->parts - 1 ? 5 : 0;
}

static void *work(void *threads) {
  edgekit_pool *pool = edgekit_pool_create((int)(intptr_t)threads, 512);
  int *numbers = calloc(NUMBERS, sizeof(int));
  int failed = 0;
  for (int loop = 0; loop < LOOPS; ++loop) {
    edgekit_pool_enter(pool);
    failed += __TVMBackendParallelLaunch(add_one, numbers, 0) != 0;
    if (__TVMBackendParallelLaunch(fail_in_one_part, numbers, 0) == 0) failed += 1;
    edgekit_pool_enter(NULL);
    struct timespec pause = {0, 3000000};
    if (loop % 50 == 0) nanosleep(&pause, 0); /* the other threads fall asleep */
  }
  for (int k = 0; k < NUMBERS; ++k) failed += numbers[k] != LOOPS;
  edgekit_pool_destroy(pool);
  free(numbers);
  return (void *)(intptr_t)failed;
}

int main(void) {
  pthread_t threads[3];
  intptr_t failed = 0;
  for (int k = 0; k < 3; ++k) pthread_create(&threads[k], 0, work, (void *)(intptr_t)(k * 2 + 1));
  for (int k = 0; k < 3; ++k) {
    void *one;
    pthread_join(threads[k], &one);
    failed += (intptr_t)one;
  }
  failed += (intptr_t)work((void *)4);
  printf("%d\n", (int)failed);
  return 0;
}
