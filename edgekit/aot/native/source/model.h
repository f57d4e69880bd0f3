/* What the generated file of a model defines, and what it calls. */
#ifndef EDGEKIT_MODEL_H
#define EDGEKIT_MODEL_H

#include "edgekit.h"

extern const edgekit_info edgekit_model;
extern const size_t edgekit_input_at[], edgekit_output_at[]; /* their offsets in the arena */

/* The program's GPU; NULL without one. */
struct edgekit_gpu *edgekit_gpu_of(edgekit_program *program);

/* Runs one step. `in` and `out` hold an address for each input and output. */
int edgekit_step(edgekit_program *program, unsigned step, const void *const *in, void *const *out,
                 unsigned char *arena);

/* Records the error of an index outside of its tensor, and returns its code. */
int edgekit_index_outside(edgekit_program *program, const char *tensor, int64_t index,
                          int64_t lowest, int64_t highest);

/* Records the error of a size that the model does not take or give, and returns its code. */
int edgekit_size_outside(edgekit_program *program, const char *tensor, int dimension, int64_t size,
                         int64_t smallest, int64_t largest);

/* Tells the listener; returns 0 if there is none. */
int edgekit_progress(const char *text);

/* A region of a vendor's library; it writes what went wrong into `text`. */
typedef int (*edgekit_region)(const void *const *in, void *const *out, int threads, char *text,
                              size_t size);
int edgekit_run_region(edgekit_program *program, edgekit_region region, const void *const *in,
                       void *const *out);

#endif
