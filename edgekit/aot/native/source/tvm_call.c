/* A function "run" for clients of TVM's RPC: the model's inputs, then its outputs, as tensors in the
   CPU's memory. TVM finds it by its name and nothing of TVM is needed, so the few lines of TVM's
   binary interface that it takes are written down here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edgekit.h"
#include "model.h"

enum { NONE = 0, TENSOR_POINTER = 7, TENSOR_OBJECT = 70, OBJECT_HEADER = 24, CPU = 1 };

typedef struct {
  int32_t kind;
  uint32_t padding;
  union {
    int64_t number;
    void *pointer;
  };
} argument;

typedef struct {
  void *data;
  int32_t place, place_number;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape;
  const int64_t *strides;
  uint64_t offset;
} tensor;

static int refuse(const char *text) {
  void (*raise)(const char *, const char *) =
      (void (*)(const char *, const char *))dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr");
  if (raise != NULL) raise("RuntimeError", text);
  return -1;
}

static const tensor *tensor_of(const argument *given) {
  if (given->kind == TENSOR_POINTER) return given->pointer;
  if (given->kind == TENSOR_OBJECT) return (const tensor *)((char *)given->pointer + OBJECT_HEADER);
  return NULL;
}

/* Returns the address of a tensor that is what the model takes; otherwise NULL. */
static void *address_of(const argument *given, const edgekit_tensor *wanted) {
  static const char *const codes[] = {"int", "uint", "float", "", "bfloat", "", "bool"};
  const tensor *found = tensor_of(given);
  if (found == NULL || found->place != CPU || found->rank != wanted->rank || found->lanes != 1)
    return NULL;
  int64_t elements = 1;
  for (int k = found->rank - 1; k >= 0; --k) {
    if (found->shape[k] != wanted->shape[k]) return NULL;
    if (found->strides != NULL && found->shape[k] != 1 && found->strides[k] != elements) return NULL;
    elements *= found->shape[k];
  }
  char name[16] = "";
  if (found->code < sizeof codes / sizeof *codes) {
    const int is_bool = found->code == 6;
    snprintf(name, sizeof name, is_bool ? "%s" : "%s%d", codes[found->code], found->bits);
  }
  return strcmp(name, wanted->dtype) == 0 ? (char *)found->data + found->offset : NULL;
}

static int run(edgekit_program *program, const argument *given, char *text, size_t size) {
  const unsigned inputs = edgekit_model.inputs, outputs = edgekit_model.outputs;
  const void **in = calloc(inputs + outputs + 1, sizeof *in);
  if (in == NULL) return EDGEKIT_NO_MEMORY;
  int status = EDGEKIT_OK;
  for (unsigned k = 0; k < inputs + outputs && status == EDGEKIT_OK; ++k) {
    const edgekit_tensor *wanted =
        k < inputs ? &edgekit_model.input[k] : &edgekit_model.output[k - inputs];
    in[k] = address_of(&given[k], wanted);
    if (in[k] == NULL) {
      snprintf(text, size, "argument %u is not the tensor %s: %s, rank %d, in the CPU's memory", k,
               wanted->name, wanted->dtype, wanted->rank);
      status = EDGEKIT_REGION_FAILED;
    }
  }
  if (status == EDGEKIT_OK) {
    status = edgekit_run(program, in, (void *const *)(in + inputs));
    if (status != EDGEKIT_OK) snprintf(text, size, "%s", edgekit_error(program));
  }
  free(in);
  return status;
}

__attribute__((visibility("default"))) int __tvm_ffi_run(void *self, const argument *given,
                                                         int32_t count, argument *result) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  static edgekit_program *program;
  char text[600] = "there is no memory for the model's tensors";
  (void)self;
  if (count != (int32_t)(edgekit_model.inputs + edgekit_model.outputs)) {
    snprintf(text, sizeof text, "run takes %u inputs and %u outputs, not %d tensors",
             edgekit_model.inputs, edgekit_model.outputs, (int)count);
    return refuse(text);
  }
  pthread_mutex_lock(&one_at_a_time);
  if (program == NULL) {
    const char *threads = getenv("TVM_NUM_THREADS");
    program = edgekit_create(NULL, threads == NULL ? 0 : atoi(threads));
  }
  const int status = program == NULL ? EDGEKIT_NO_MEMORY : run(program, given, text, sizeof text);
  pthread_mutex_unlock(&one_at_a_time);
  if (status != EDGEKIT_OK) return refuse(text);
  *result = (argument){.kind = NONE};
  return 0;
}
