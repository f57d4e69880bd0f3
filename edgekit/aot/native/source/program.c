/* A program: memory for a model's tensors, and the threads and the GPU that run it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edgekit.h"
#include "gpu.h"
#include "model.h"
#include "threads.h"

struct edgekit_program {
  unsigned char *arena;
  void *owned; /* the arena, if it was allocated */
  edgekit_pool *pool;
  edgekit_gpu *gpu;
  int broken; /* the status of every run, if the GPU can't be used */
  const void **in;
  void **out;
  char error[512];
};

const edgekit_info *edgekit_model_info(void) { return &edgekit_model; }

edgekit_program *edgekit_create(void *arena, int threads) {
  edgekit_program *program = calloc(1, sizeof *program);
  if (program == NULL) return NULL;
  unsigned char *shared = arena;
  program->gpu = edgekit_gpu_open(&shared, program->error, sizeof program->error);
  if (program->gpu == NULL && *program->error != '\0') program->broken = EDGEKIT_DEVICE_FAILED;
  arena = shared;
  if (arena == NULL) {
    size_t bytes = edgekit_model.arena_bytes == 0 ? EDGEKIT_ALIGNMENT : edgekit_model.arena_bytes;
    if (posix_memalign(&program->owned, EDGEKIT_ALIGNMENT, bytes) != 0) program->owned = NULL;
    arena = program->owned;
  }
  program->arena = arena;
  program->pool = edgekit_pool_create(threads, edgekit_model.thread_bytes);
  program->in = calloc(edgekit_model.inputs + 1, sizeof *program->in);
  program->out = calloc(edgekit_model.outputs + 1, sizeof *program->out);
  if (arena == NULL || program->pool == NULL || program->in == NULL || program->out == NULL) {
    edgekit_destroy(program);
    return NULL;
  }
  return program;
}

void edgekit_destroy(edgekit_program *program) {
  if (program == NULL) return;
  edgekit_gpu_close(program->gpu);
  edgekit_pool_destroy(program->pool);
  free(program->owned);
  free(program->in);
  free(program->out);
  free(program);
}

void *edgekit_input(edgekit_program *program, unsigned index) {
  return index < edgekit_model.inputs ? program->arena + edgekit_input_at[index] : NULL;
}

const void *edgekit_output(edgekit_program *program, unsigned index) {
  return index < edgekit_model.outputs ? program->arena + edgekit_output_at[index] : NULL;
}

static int is_aligned(const void *address) {
  return (uintptr_t)address % EDGEKIT_ALIGNMENT == 0;
}

/* Kernels take aligned addresses only, and a GPU the arena's: other memory is copied through the arena. */
static void resolve(edgekit_program *program, const void *const *inputs, void *const *outputs) {
  for (unsigned k = 0; k < edgekit_model.inputs; ++k) {
    void *own = edgekit_input(program, k);
    const void *given = inputs == NULL || inputs[k] == NULL ? own : inputs[k];
    if (given != own && (program->gpu != NULL || !is_aligned(given))) {
      memcpy(own, given, edgekit_model.input[k].bytes);
      given = own;
    }
    program->in[k] = given;
  }
  for (unsigned k = 0; k < edgekit_model.outputs; ++k) {
    void *own = program->arena + edgekit_output_at[k];
    int usable = outputs != NULL && outputs[k] != NULL && is_aligned(outputs[k]) && program->gpu == NULL;
    program->out[k] = usable ? outputs[k] : own;
  }
}

/* Runs steps from the first to before the last; the GPU has the tensors meanwhile. */
static int run_steps(edgekit_program *program, unsigned first, unsigned last) {
  if (program->broken) return program->broken;
  int status = program->gpu == NULL ? EDGEKIT_OK : edgekit_gpu_begin(program->gpu, first == 0);
  edgekit_pool_enter(program->pool);
  for (unsigned step = first; step < last && status == EDGEKIT_OK; ++step)
    status = edgekit_step(program, step, program->in, program->out, program->arena);
  edgekit_pool_enter(NULL);
  if (program->gpu == NULL || status == EDGEKIT_DEVICE_FAILED) return status;
  const int ended = edgekit_gpu_end(program->gpu);
  return status == EDGEKIT_OK ? ended : status;
}

int edgekit_run(edgekit_program *program, const void *const *inputs, void *const *outputs) {
  resolve(program, inputs, outputs);
  const int status = run_steps(program, 0, edgekit_model.steps);
  for (unsigned k = 0; k < edgekit_model.outputs && status == EDGEKIT_OK; ++k)
    if (outputs != NULL && outputs[k] != NULL && program->out[k] != outputs[k])
      memcpy(outputs[k], program->out[k], edgekit_model.output[k].bytes);
  return status;
}

int edgekit_run_step(edgekit_program *program, unsigned step) {
  if (step >= edgekit_model.steps) {
    snprintf(program->error, sizeof program->error, "there is no step %u", step);
    return EDGEKIT_NO_SUCH_STEP;
  }
  if (program->gpu != NULL) {
    const int status = edgekit_gpu_measure(program->gpu);
    if (status != EDGEKIT_OK) return status;
  }
  resolve(program, NULL, NULL);
  return run_steps(program, step, step + 1);
}

long long edgekit_device_nanoseconds(const edgekit_program *program) {
  return program->gpu == NULL ? 0 : edgekit_gpu_nanoseconds(program->gpu);
}

edgekit_gpu *edgekit_gpu_of(edgekit_program *program) { return program->gpu; }

static void (*listener)(const char *text);

void edgekit_on_progress(void (*hear)(const char *text)) { listener = hear; }

int edgekit_progress(const char *text) {
  if (listener != NULL) listener(text);
  return listener != NULL;
}

const char *edgekit_error(const edgekit_program *program) { return program->error; }

int edgekit_threads(const edgekit_program *program) { return edgekit_pool_threads(program->pool); }

int edgekit_index_outside(edgekit_program *program, const char *tensor, int64_t index,
                          int64_t lowest, int64_t highest) {
  snprintf(program->error, sizeof program->error,
           "'%.300s' holds the index %lld, which is outside of %lld to %lld", tensor,
           (long long)index, (long long)lowest, (long long)highest);
  return EDGEKIT_INDEX_OUTSIDE;
}

int edgekit_size_outside(edgekit_program *program, const char *tensor, int dimension, int64_t size,
                         int64_t smallest, int64_t largest) {
  const int at = snprintf(program->error, sizeof program->error,
                          "dimension %d of '%.300s' has the size %lld, and takes %lld", dimension,
                          tensor, (long long)size, (long long)smallest);
  if (smallest != largest)
    snprintf(program->error + at, sizeof program->error - (size_t)at, " to %lld",
             (long long)largest);
  return EDGEKIT_NO_SUCH_SIZE;
}

int edgekit_run_region(edgekit_program *program, edgekit_region region, const void *const *in,
                       void *const *out) {
  const int failed = region(in, out, edgekit_threads(program), program->error, sizeof program->error);
  return failed ? EDGEKIT_REGION_FAILED : EDGEKIT_OK;
}
