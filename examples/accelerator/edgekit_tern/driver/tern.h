/* The driver of Tern, an NPU that does not exist. tern.c runs its commands on the CPU; the driver of
 * a real device would hand them over to it. */
#ifndef TERN_H
#define TERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const void* data;
  size_t size;
} tern_input;

typedef struct {
  void* data;
  size_t size;
} tern_output;

typedef struct {
  const void* commands;
  size_t commands_size;
  const void* weights;
  size_t weights_size;
  const tern_input* inputs;
  size_t input_count;
  const tern_output* outputs;
  size_t output_count;
} tern_job;

/* Runs a job; several threads may, each on memory of its own. Returns NULL, or what is wrong. */
const char* tern_run(const tern_job* job);

#ifdef __cplusplus
}
#endif
#endif
