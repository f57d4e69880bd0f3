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

/* Take a byte from the line; 1 when a whole and sound frame has come. It is valid until the next
 * byte is taken. */
int frame_take(uint8_t byte, frame *taken);
/* What came and was no frame: noise. */
uint32_t frame_damaged(void);

/* An answer, in pieces: its length is said first. */
void frame_begin(uint8_t kind, uint32_t sequence, uint32_t length);
void frame_add(const void *bytes, uint32_t count);
void frame_end(void);

#endif
