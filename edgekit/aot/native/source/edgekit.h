/* A model as a shared library: no runtime, nothing but the C library. Every function may be called
   from several threads at once, each with a program of its own. */
#ifndef EDGEKIT_H
#define EDGEKIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* all else in the library is hidden */

#define EDGEKIT_INTERFACE 1
#define EDGEKIT_ALIGNMENT 64

typedef struct {
  const char *name;
  const char *dtype; /* as numpy names it: float32, int8, bool */
  int rank;
  const int64_t *shape;
  size_t bytes;
} edgekit_tensor;

/* A dimension whose size differs from run to run. The tensor has its largest size; the true one is an
   int64 scalar, its length, among the inputs or outputs behind those of the model. What lies beyond it
   may hold anything. */
typedef struct {
  int is_output;
  unsigned tensor; /* its index among the inputs, or the outputs */
  int dimension;
  int64_t smallest;
  int length_is_output;
  unsigned length;
} edgekit_varying;

typedef struct {
  int interface; /* EDGEKIT_INTERFACE of the library */
  const char *model;
  unsigned inputs, outputs, steps;
  const edgekit_tensor *input, *output;
  const char *const *step; /* the name of each step, which holds that of its layer */
  size_t arena_bytes;      /* of memory for all tensors of a program */
  size_t thread_bytes;     /* of memory for each of its threads, besides the first */
  unsigned model_inputs, model_outputs; /* without the lengths */
  unsigned varyings;                    /* 0 if all sizes are fixed */
  const edgekit_varying *varying;
} edgekit_info;

typedef struct edgekit_program edgekit_program;

enum {
  EDGEKIT_OK = 0,
  EDGEKIT_NO_MEMORY = 1,
  EDGEKIT_NO_SUCH_STEP = 2,
  EDGEKIT_INDEX_OUTSIDE = 3, /* an index is outside of the tensor that it addresses */
  EDGEKIT_REGION_FAILED = 4, /* a vendor's library could not run its part of the model */
  EDGEKIT_NO_SUCH_SIZE = 5,  /* a tensor has a size that the model does not take */
  EDGEKIT_DEVICE_FAILED = 6  /* there is no GPU that runs the model's kernels, or it failed */
};

const edgekit_info *edgekit_model_info(void);

/* Makes a program that runs on `threads` threads, the caller's among them; 0 takes one for each core.
   `arena` has `arena_bytes` and is aligned to EDGEKIT_ALIGNMENT; NULL allocates it. Returns NULL
   without memory. */
edgekit_program *edgekit_create(void *arena, int threads);
void edgekit_destroy(edgekit_program *program);

/* The memory of an input or output inside the arena, which costs no copy: write the input before a
   run, read the output before the next one. */
void *edgekit_input(edgekit_program *program, unsigned index);
const void *edgekit_output(edgekit_program *program, unsigned index);

/* Runs the model. Each pointer may be NULL, and so may `inputs` and `outputs`: then the arena's own
   memory is used. Returns EDGEKIT_OK, or a code that edgekit_error tells in words. */
int edgekit_run(edgekit_program *program, const void *const *inputs, void *const *outputs);

/* Runs the model on tensors of their true sizes, without gaps, where sizes vary and where they do not.
   `shapes` has the shape of each input, and `made` gets that of each output. There is one of each for
   `model_inputs` and `model_outputs`; memory for an output has all its `bytes`. */
int edgekit_run_sizes(edgekit_program *program, const void *const *inputs,
                      const int64_t *const *shapes, void *const *outputs, int64_t *const *made);

/* As edgekit_run, one step at a time, for measuring and debugging: copy the inputs into the arena first. */
int edgekit_run_step(edgekit_program *program, unsigned step);

/* What the last step's kernels took by the clock of a GPU; 0 if it had none. */
long long edgekit_device_nanoseconds(const edgekit_program *program);

/* Hears, from any thread, what a part of the model says that takes minutes to begin, such as building
   an engine. What begins with "note: " or "warning: " says how a part runs, such as on which GPU.
   Without a listener it goes to stderr. */
void edgekit_on_progress(void (*hear)(const char *text));

const char *edgekit_error(const edgekit_program *program);
int edgekit_threads(const edgekit_program *program);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
