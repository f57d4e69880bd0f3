/* nRF5340, its application core: the full clock, the cache, and the UART with DMA, a byte at a time. */
#include "board.h"

#define UART(offset) EK_REGISTER(EK_UART + (offset))
#define STARTRX UART(0x000u)
#define STARTTX UART(0x008u)
#define ENDRX UART(0x110u)
#define ENDTX UART(0x120u)
#define INTENSET UART(0x304u)
#define ENABLE UART(0x500u)
#define PSELTXD UART(0x50Cu)
#define PSELRXD UART(0x514u)
#define BAUDRATE UART(0x524u)
#define RXD_PTR UART(0x534u)
#define RXD_MAXCNT UART(0x538u)
#define TXD_PTR UART(0x544u)
#define TXD_MAXCNT UART(0x548u)

#define PORT 0x50842500u
#define OUTSET EK_REGISTER(PORT + 0x008u)
#define PIN_CNF(pin) EK_REGISTER(PORT + 0x200u + 4u * (pin))
#define CLOCK_HFCLKSTART EK_REGISTER(0x50005000u)
#define CLOCK_HFCLKSRC EK_REGISTER(0x50005514u)
#define CLOCK_HFCLKCTRL EK_REGISTER(0x500055B8u)
#define CACHE_ENABLE EK_REGISTER(0x50001500u)

static volatile uint8_t received, sent;

uint32_t board_start(void) {
  CLOCK_HFCLKCTRL = EK_CLOCK == 128000000u ? 0 : 1;
  CLOCK_HFCLKSRC = 1; /* the crystal: the other one is too inaccurate for the line */
  CLOCK_HFCLKSTART = 1;
  CACHE_ENABLE = 1;
  OUTSET = 1u << EK_TX_PIN;
  PIN_CNF(EK_TX_PIN) = 3;   /* an output */
  PIN_CNF(EK_RX_PIN) = 0xC; /* an input, pulled up */
  PSELTXD = EK_TX_PIN;
  PSELRXD = EK_RX_PIN;
  /* Nordic's values are the rate times 2^32 / 16 MHz, rounded to a multiple of 0x1000. */
  BAUDRATE = (uint32_t)((((uint64_t)EK_BAUD << 32) / 16000000u + 0x800u) & ~(uint64_t)0xFFFu);
  RXD_PTR = (uint32_t)(uintptr_t)&received;
  RXD_MAXCNT = 1;
  TXD_PTR = (uint32_t)(uintptr_t)&sent;
  TXD_MAXCNT = 1;
  ENABLE = 8;
  INTENSET = 1u << 4; /* on the end of receiving */
  STARTRX = 1;
  return EK_CLOCK;
}

int board_read(void) {
  if (ENDRX == 0u) {
    return -1;
  }
  ENDRX = 0;
  int byte = (int)received;
  STARTRX = 1;
  return byte;
}

void board_write(uint8_t byte) {
  sent = byte;
  ENDTX = 0;
  STARTTX = 1;
  while (ENDTX == 0u) {
  }
}
