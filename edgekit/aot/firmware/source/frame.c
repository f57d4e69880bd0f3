#include "frame.h"

#include "board.h"

#define CRC_BYTES 4u
#define LONGEST (FRAME_HEADER + FRAME_PAYLOAD + CRC_BYTES)

static uint32_t crc_byte(uint32_t crc, uint8_t byte) {
  static const uint32_t table[16] = {
      0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u,
      0x4DB26158u, 0x5005713Cu, 0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu,
      0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu};
  crc = table[(crc ^ byte) & 15u] ^ (crc >> 4);
  return table[(crc ^ ((uint32_t)byte >> 4)) & 15u] ^ (crc >> 4);
}

static uint32_t word_at(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Receiving: consistent overhead byte stuffing, decoded byte by byte. */
static struct {
  uint8_t bytes[LONGEST];
  uint32_t count;
  uint32_t left; /* of the block */
  uint8_t code;
  uint8_t broken;
} taking;

static uint32_t damaged;

uint32_t frame_damaged(void) { return damaged; }

static int whole(frame *taken) {
  uint32_t count = taking.count;
  const uint8_t *bytes = taking.bytes;
  if (taking.broken || taking.left != 0u || count < FRAME_HEADER + CRC_BYTES) {
    return 0;
  }
  uint32_t length = bytes[6] | (uint32_t)bytes[7] << 8;
  if (bytes[0] != FRAME_VERSION || length + FRAME_HEADER + CRC_BYTES != count) {
    return 0;
  }
  uint32_t crc = 0xFFFFFFFFu;
  for (uint32_t i = 0; i < count - CRC_BYTES; i++) {
    crc = crc_byte(crc, bytes[i]);
  }
  if (~crc != word_at(bytes + count - CRC_BYTES)) {
    return 0;
  }
  taken->kind = bytes[1];
  taken->sequence = word_at(bytes + 2);
  taken->length = length;
  taken->payload = bytes + FRAME_HEADER;
  return 1;
}

static void keep(uint8_t byte) {
  if (taking.count < LONGEST) {
    taking.bytes[taking.count++] = byte;
  } else {
    taking.broken = 1;
  }
}

int frame_take(uint8_t byte, frame *taken) {
  if (byte == 0u) {
    int sound = whole(taken);
    if (!sound && taking.count != 0u) {
      damaged++;
    }
    taking.count = 0;
    taking.left = 0;
    taking.code = 0xFF;
    taking.broken = 0;
    return sound;
  }
  if (taking.left == 0u) {
    if (taking.code != 0xFFu && taking.code != 0u) {
      keep(0);
    }
    taking.code = byte;
    taking.left = byte - 1u;
  } else {
    taking.left--;
    keep(byte);
  }
  return 0;
}

/* Sending: a block is held back until its length is known. */
static struct {
  uint8_t block[254];
  uint32_t count;
  uint32_t crc;
} sending;

static void write_block(uint32_t code) {
  board_write((uint8_t)code);
  for (uint32_t i = 0; i < sending.count; i++) {
    board_write(sending.block[i]);
  }
  sending.count = 0;
}

static void put(uint8_t byte) {
  if (byte == 0u) {
    write_block(sending.count + 1u);
    return;
  }
  sending.block[sending.count++] = byte;
  if (sending.count == sizeof sending.block) {
    write_block(0xFF);
  }
}

void frame_add(const void *bytes, uint32_t count) {
  const uint8_t *from = bytes;
  for (uint32_t i = 0; i < count; i++) {
    sending.crc = crc_byte(sending.crc, from[i]);
    put(from[i]);
  }
}

void frame_begin(uint8_t kind, uint32_t sequence, uint32_t length) {
  const uint8_t header[FRAME_HEADER] = {
      FRAME_VERSION,
      kind,
      (uint8_t)sequence,
      (uint8_t)(sequence >> 8),
      (uint8_t)(sequence >> 16),
      (uint8_t)(sequence >> 24),
      (uint8_t)length,
      (uint8_t)(length >> 8),
  };
  sending.count = 0;
  sending.crc = 0xFFFFFFFFu;
  board_write(0); /* ends any noise before the frame */
  frame_add(header, sizeof header);
}

void frame_end(void) {
  uint32_t crc = ~sending.crc;
  const uint8_t bytes[CRC_BYTES] = {(uint8_t)crc, (uint8_t)(crc >> 8), (uint8_t)(crc >> 16),
                                    (uint8_t)(crc >> 24)};
  frame_add(bytes, sizeof bytes);
  write_block(sending.count + 1u);
  board_write(0);
}
