/* Frames on the serial line: docs/serial-protocol.md. */
#ifndef EDGEKIT_FRAME_H
#define EDGEKIT_FRAME_H

#include <stdint.h>

#define FRAME_VERSION 1u
#define FRAME_HEADER 8u
#define FRAME_PAYLOAD 1024u

typedef struct {
  uint8_t kind;
  uint32_t sequence;
  uint32_t length;
  const uint8_t *payload;
} frame;

/* Take a byte from the line; return 1 when it completes a valid frame, which is valid until the
 * next byte is taken. */
int frame_take(uint8_t byte, frame *taken);
/* Return the number of received blocks that were no frame: noise. */
uint32_t frame_damaged(void);

/* Send an answer in pieces; its length comes first. */
void frame_begin(uint8_t kind, uint32_t sequence, uint32_t length);
void frame_add(const void *bytes, uint32_t count);
void frame_end(void);

#endif
