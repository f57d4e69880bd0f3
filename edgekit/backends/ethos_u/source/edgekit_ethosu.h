/* One region of a model on an Ethos-U: what Vela made of it, and how it is started. */
#ifndef EDGEKIT_ETHOSU_H
#define EDGEKIT_ETHOSU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EDGEKIT_ETHOSU_REGIONS 8

typedef struct {
  const void *commands; /* the driver's payload: Vela's header, then the command stream */
  uint32_t commands_bytes;
  const void *constants; /* weights, scales and tables: read only */
  uint32_t constants_bytes;
  uint8_t constants_region; /* the base pointers that the commands name */
  uint8_t scratch_region;
  uint8_t fast_region;
  uint32_t scratch_bytes; /* of the memory given to edgekit_ethosu_run; fast memory lies after it */
  uint32_t fast_bytes;
  /* For the twin alone: the decoded weights, and where those of each convolution begin. */
  const int8_t *weights;
  const uint32_t *places;
} edgekit_ethosu_region;

/* Return 0, or an error: of Arm's driver, or of the twin. */
int edgekit_ethosu_run(const edgekit_ethosu_region *region, void *scratch);

/* The twin: the same commands, interpreted by the CPU. */
int edgekit_ethosu_interpret(const edgekit_ethosu_region *region, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
