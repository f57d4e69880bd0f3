/* Tensors of true sizes, without gaps, around a program whose tensors have their largest sizes. */
#include <string.h>

#include "edgekit.h"
#include "model.h"

static const edgekit_varying *varying_at(int is_output, unsigned tensor, int dimension) {
  for (unsigned k = 0; k < edgekit_model.varyings; ++k) {
    const edgekit_varying *one = &edgekit_model.varying[k];
    if (one->is_output == is_output && one->tensor == tensor && one->dimension == dimension)
      return one;
  }
  return NULL;
}

/* Copies between a tensor of the largest size and one without gaps, from the dimension `axis` on.
   `bytes` are those of the largest. Returns the bytes without gaps. */
static size_t copy(const edgekit_tensor *of, const int64_t *shape, int axis, size_t bytes,
                   unsigned char *whole, unsigned char *part, int into_whole) {
  int is_whole = 1;
  for (int k = axis; k < of->rank; ++k) is_whole = is_whole && shape[k] == of->shape[k];
  if (is_whole) {
    memcpy(into_whole ? whole : part, into_whole ? part : whole, bytes);
    return bytes;
  }
  const size_t inner = bytes / (size_t)of->shape[axis];
  size_t done = 0;
  for (int64_t k = 0; k < shape[axis]; ++k)
    done += copy(of, shape, axis + 1, inner, whole + (size_t)k * inner, part + done, into_whole);
  return done;
}

/* Returns the input dimension that has this length; NULL if an output holds it. */
static const edgekit_varying *source_of(const edgekit_varying *one) {
  if (one->length_is_output) return NULL;
  for (unsigned k = 0; k < edgekit_model.varyings; ++k) {
    const edgekit_varying *other = &edgekit_model.varying[k];
    if (!other->is_output && other->length == one->length) return other;
  }
  return NULL;
}

static int take(edgekit_program *program, unsigned index, const void *data,
                const int64_t *const *shapes) {
  const edgekit_tensor *of = &edgekit_model.input[index];
  for (int axis = 0; axis < of->rank; ++axis) {
    const edgekit_varying *one = varying_at(0, index, axis);
    const int64_t size = shapes[index][axis], largest = of->shape[axis];
    const int64_t smallest = one == NULL ? largest : one->smallest;
    if (size < smallest || size > largest)
      return edgekit_size_outside(program, of->name, axis, size, smallest, largest);
    if (one == NULL) continue;
    const edgekit_varying *first = source_of(one);
    const int64_t same = shapes[first->tensor][first->dimension];
    if (size != same) return edgekit_size_outside(program, of->name, axis, size, same, same);
    memcpy(edgekit_input(program, one->length), &size, sizeof size);
  }
  copy(of, shapes[index], 0, of->bytes, edgekit_input(program, index), (void *)data, 1);
  return EDGEKIT_OK;
}

static int give(edgekit_program *program, unsigned index, void *data,
                const int64_t *const *shapes, int64_t *shape) {
  const edgekit_tensor *of = &edgekit_model.output[index];
  for (int axis = 0; axis < of->rank; ++axis) {
    const edgekit_varying *one = varying_at(1, index, axis);
    shape[axis] = of->shape[axis];
    if (one == NULL) continue;
    const edgekit_varying *first = source_of(one);
    if (first != NULL)
      shape[axis] = shapes[first->tensor][first->dimension];
    else
      memcpy(&shape[axis], edgekit_output(program, one->length), sizeof *shape);
    if (shape[axis] < one->smallest || shape[axis] > of->shape[axis])
      return edgekit_size_outside(program, of->name, axis, shape[axis], one->smallest,
                                  of->shape[axis]);
  }
  copy(of, shape, 0, of->bytes, (void *)edgekit_output(program, index), data, 0);
  return EDGEKIT_OK;
}

int edgekit_run_sizes(edgekit_program *program, const void *const *inputs,
                      const int64_t *const *shapes, void *const *outputs, int64_t *const *made) {
  int status = EDGEKIT_OK;
  for (unsigned k = 0; k < edgekit_model.model_inputs && status == EDGEKIT_OK; ++k)
    status = take(program, k, inputs[k], shapes);
  if (status == EDGEKIT_OK) status = edgekit_run(program, NULL, NULL);
  for (unsigned k = 0; k < edgekit_model.model_outputs && status == EDGEKIT_OK; ++k)
    status = give(program, k, outputs[k], shapes, made[k]);
  return status;
}
