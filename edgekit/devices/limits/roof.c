/* What a CPU can do at most, by small kernels: prints the additions and multiplications a second in
   float32 and in small integers, and the bytes a second that are read from memory.

     roof THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define SUMS 12

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* The sums of one step: an int32 of each lane, over PRODUCTS multiplications in all. */
#if defined(__AVX512VNNI__)
typedef __m512i ints;
enum { PRODUCTS = 64 };
static ints products(ints sum, ints a, ints b) { return _mm512_dpbusd_epi32(sum, a, b); }
#elif defined(__AVXVNNI__)
typedef __m256i ints;
enum { PRODUCTS = 32 };
static ints products(ints sum, ints a, ints b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
#elif defined(__AVX512BW__)
typedef __m512i ints;
enum { PRODUCTS = 32 };
static ints products(ints sum, ints a, ints b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
#elif defined(__AVX2__)
typedef __m256i ints;
enum { PRODUCTS = 16 };
static ints products(ints sum, ints a, ints b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#elif defined(__SSE2__)
typedef __m128i ints;
enum { PRODUCTS = 8 };
static ints products(ints sum, ints a, ints b) {
  return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t ints;
enum { PRODUCTS = 16 };
static ints products(ints sum, ints a, ints b) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
#elif defined(__ARM_NEON)
typedef int32x4_t ints;
enum { PRODUCTS = 8 };
static ints products(ints sum, ints a, ints b) {
  int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
  return vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
}
#else
typedef unsigned ints __attribute__((vector_size(LANES * 4)));
enum { PRODUCTS = LANES };
static ints products(ints sum, ints a, ints b) { return sum + a * b; }
#endif

static int products_a_step(void) { return PRODUCTS * SUMS; }

static __attribute__((noinline)) int integers(long steps) {
  enum { WIDTH = sizeof(ints) / sizeof(int) };
  ints a[SUMS], x;
  int numbers[SUMS * WIDTH], all = 0;
  /* Sums that began equal would be one. */
  for (int i = 0; i < SUMS * WIDTH; ++i) numbers[i] = (int)steps + i;
  memcpy(a, numbers, sizeof a);
  memcpy(&x, numbers, sizeof x);
  for (long s = 0; s < steps; ++s) {
    /* Each step multiplies what the last one made: no compiler moves that out of the loop. */
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; ++i) a[i] = products(a[i], a[i], x);
  }
  memcpy(numbers, a, sizeof a);
  for (int i = 0; i < SUMS * WIDTH; ++i) all ^= numbers[i];
  return all;
}
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static __attribute__((noinline)) float arithmetic(long steps) {
  vec a[SUMS];
  float seed = (float)steps * 1e-9f;
  vec x = (vec){0} + 0.999f + seed, y = (vec){0} + seed;
  for (int i = 0; i < SUMS; ++i) a[i] = (vec){0} + (float)i;
  for (long s = 0; s < steps; ++s) {
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; ++i) a[i] = a[i] * x + y;
  }
  float all = 0;
  for (int i = 0; i < SUMS; ++i)
    for (int k = 0; k < LANES; ++k) all += a[i][k];
  return all;
}

static __attribute__((noinline)) float reading(const float *data, long count) {
  vec a[8] = {0};
  for (long s = 0; s + 8 * LANES <= count; s += 8 * LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] += *(const vec *)(data + s + i * LANES);
  }
  float all = 0;
  for (int i = 0; i < 8; ++i)
    for (int k = 0; k < LANES; ++k) all += a[i][k];
  return all;
}

enum { STEPS = 200000, TRIES = 40, MOST_THREADS = 64 };
/* More than any cache holds; each try reads all of it. */
static const long kBytes = 64L << 20;

typedef struct {
  void (*work)(void *task);
  pthread_barrier_t *barrier;
  const float *data;
  long count;
  volatile float kept;
  double started, ended;
} task;

static void add_and_multiply(void *given) { ((task *)given)->kept = arithmetic(STEPS); }
static void multiply_integers(void *given) { ((task *)given)->kept = (float)integers(STEPS); }
static void read_memory(void *given) {
  task *t = given;
  t->kept = reading(t->data, t->count);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec * 1e-9;
}

static void *once(void *given) {
  task *t = given;
  pthread_barrier_wait(t->barrier);
  t->started = now();
  t->work(t);
  t->ended = now();
  return NULL;
}

/* The fastest of several tries: what else the machine does only takes away. */
static double fastest(void (*work)(void *), int threads, const float *data) {
  double best = 1e9;
  for (int n = 0; n < TRIES; ++n) {
    pthread_barrier_t barrier;
    pthread_t running[MOST_THREADS];
    task tasks[MOST_THREADS];
    long part = kBytes / (long)sizeof(float) / threads;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; ++i) {
      tasks[i] = (task){work, &barrier, data + i * part, part, 0, 0, 0};
      if (pthread_create(&running[i], NULL, once, &tasks[i]) != 0) exit(1);
    }
    double first = 0, last = 0;
    for (int i = 0; i < threads; ++i) {
      pthread_join(running[i], NULL);
      if (i == 0 || tasks[i].started < first) first = tasks[i].started;
      if (i == 0 || tasks[i].ended > last) last = tasks[i].ended;
    }
    double took = last - first;
    pthread_barrier_destroy(&barrier);
    if (took < best) best = took;
  }
  return best;
}

int main(int count, char **words) {
  int threads = count > 1 ? atoi(words[1]) : 1;
  if (threads < 1 || threads > MOST_THREADS) threads = 1;
  float *data = malloc(kBytes);
  if (data == NULL) return 1;
  for (long i = 0; i < kBytes / (long)sizeof(float); ++i) data[i] = 1.0f;
  double floats = 2.0 * STEPS * SUMS * LANES * threads;
  double products = 2.0 * STEPS * products_a_step() * threads;
  printf("float32 %.6g\n", floats / fastest(add_and_multiply, threads, data));
  printf("integers %.6g\n", products / fastest(multiply_integers, threads, data));
  printf("bytes %.6g\n", kBytes / fastest(read_memory, threads, data));
  return 0;
}
