/* The models of this firmware: models.c is made from their headers. */
#ifndef EDGEKIT_MODELS_H
#define EDGEKIT_MODELS_H

#include <stdint.h>

typedef struct {
  const char *name;
  const char *dtype;
  uint32_t bytes;
  uint32_t offset; /* in the arena */
  float scale;     /* 0 of a tensor that is not quantised, or by several scales */
  int32_t zero_point;
} ek_tensor;

typedef struct {
  const char *name;
  const char *sha256;
  uint32_t arena;
  uint32_t steps;
  uint32_t inputs;
  uint32_t outputs;
  const ek_tensor *input;
  const ek_tensor *output;
  int (*check)(void);
  int (*run)(void *arena);
  int (*run_step)(unsigned step, void *arena);
  const char *(*step_name)(unsigned step);
} ek_model;

extern const ek_model ek_models[];
extern const uint32_t ek_models_count;

/* One arena for all models: they run one at a time. */
extern uint8_t ek_arena[];

#endif
