/* The firmware's answers. The data is a row of requests: kind, number, length, payload; each is put
 * into a sound frame, so that what is tried is what handles it. */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "frame.h"
#include "models.h"

#define SPARE_BYTES "64"
__asm__(".bss\n.globl ek_spare_start\nek_spare_start: .skip " SPARE_BYTES
        "\n.globl ek_spare_end\nek_spare_end: .skip 16\n.text");

uint8_t ek_arena[EK_ARENA_BYTES];
const uint8_t ek_build_id[20] = {1};

static int pass(void) { return 0; }
static int run(void *arena) {
  memset(arena, 1, EK_ARENA_BYTES);
  return 0;
}
static int run_step(unsigned step, void *arena) {
  (void)step;
  return run(arena);
}
static const char *step_name(unsigned step) {
  static const char *const names[] = {"conv", "relu"};
  return names[step];
}

static const ek_tensor small[] = {{"x", "int8", 16, 0}, {"y", "int8", 8, 16}};
static const ek_tensor large[] = {{"x", "float32", 200, EK_ARENA_BYTES - 200}};
const ek_model ek_models[] = {
    {"small", "ab", EK_ARENA_BYTES, 2, 2, 1, small, small, pass, run, run_step, step_name},
    {"large", "cd", EK_ARENA_BYTES, 2, 1, 1, large, large, pass, run, run_step, step_name},
};
const uint32_t ek_models_count = 2;

static uint8_t line[1 << 16];
static size_t line_size, line_at;
static jmp_buf ended;

int board_read(void) {
  if (line_at == line_size) {
    longjmp(ended, 1);
  }
  return line[line_at++];
}
void board_write(uint8_t byte) { (void)byte; }
void machine_wait(void) {}
void machine_reset(void) {}
uint32_t machine_cpu(void) { return 0; }
void counter_start(void) {}
uint64_t counter_stop(void) { return 7; }
uint32_t stack_used(void) { return 1; }
uint32_t stack_size(void) { return 2; }

static uint32_t checksum(const uint8_t *bytes, size_t count) {
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) {
      crc = crc & 1u ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
  }
  return ~crc;
}

static void put_frame(const uint8_t *body, size_t count) {
  size_t code = line_size++;
  for (size_t i = 0; i <= count; i++) {
    if (i == count || body[i] == 0u) {
      line[code] = (uint8_t)(line_size - code);
      code = line_size++;
    } else {
      line[line_size++] = body[i];
      if (line_size - code == 0xFFu) {
        line[code] = 0xFF;
        code = line_size++;
      }
    }
  }
  line_size = code;
  line[line_size++] = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t at = 0;
  line_size = line_at = 0;
  line[line_size++] = 0;
  while (at + 3 <= size && line_size + 1100 < sizeof line) {
    uint8_t body[8 + 255 + 4] = {FRAME_VERSION, data[at], data[at + 1], 0, 1, 0, data[at + 2], 0};
    size_t count = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
    body[6] = (uint8_t)count;
    memcpy(body + 8, data + at + 3, count);
    uint32_t crc = checksum(body, 8 + count);
    for (int i = 0; i < 4; i++) {
      body[8 + count + i] = (uint8_t)(crc >> 8 * i);
    }
    put_frame(body, 8 + count + 4);
    at += 3 + count;
  }
  if (setjmp(ended) == 0) {
    serve(1000);
  }
  return 0;
}
