/* The firmware's frames, as bytes come on the line. */
#include "frame.h"

#include <stddef.h>
#include <stdint.h>

void board_write(uint8_t byte) { (void)byte; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static volatile uint32_t sum;
  frame taken;
  for (size_t i = 0; i < size; i++) {
    if (frame_take(data[i], &taken)) {
      for (uint32_t at = 0; at < taken.length; at++) {
        sum += taken.payload[at];
      }
    }
  }
  frame_take(0, &taken);
  return 0;
}
