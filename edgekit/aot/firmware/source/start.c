/* From reset to the endless loop, and the marks on the stack. */
#include <stddef.h>
#include <string.h>

#include "board.h"

extern uint32_t ek_data_start[], ek_data_end[], ek_data_load[];
extern uint32_t ek_bss_start[], ek_bss_end[];

#define PAINT 0xE49E49E4u

/* Everything up to `serve` runs without a word of .data or .bss, and on an unpainted stack. */
void start(void) {
  for (uint32_t *word = ek_stack_start; word < (uint32_t *)__builtin_frame_address(0) - 32; word++) {
    *(volatile uint32_t *)word = PAINT;
  }
  memcpy(ek_data_start, ek_data_load, (size_t)((uintptr_t)ek_data_end - (uintptr_t)ek_data_start));
  memset(ek_bss_start, 0, (size_t)((uintptr_t)ek_bss_end - (uintptr_t)ek_bss_start));
  machine_start();
  serve(board_start());
}

uint32_t stack_size(void) { return (uint32_t)((uintptr_t)ek_stack_top - (uintptr_t)ek_stack_start); }

uint32_t stack_used(void) {
  const uint32_t *word = ek_stack_start;
  while (word < ek_stack_top && *(const volatile uint32_t *)word == PAINT) {
    word++;
  }
  return (uint32_t)((uintptr_t)ek_stack_top - (uintptr_t)word);
}
