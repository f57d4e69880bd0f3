/* nRF51 and nRF52: the UART without DMA. Their core runs at full speed after a reset. */
#include "board.h"

#define TASK(offset) EK_REGISTER(EK_UART + (offset))
#define STARTRX TASK(0x000u)
#define STARTTX TASK(0x008u)
#define RXDRDY TASK(0x108u)
#define TXDRDY TASK(0x11Cu)
#define ERROR TASK(0x124u)
#define INTENSET TASK(0x304u)
#define ERRORSRC TASK(0x480u)
#define ENABLE TASK(0x500u)
#define PSELTXD TASK(0x50Cu)
#define PSELRXD TASK(0x514u)
#define RXD TASK(0x518u)
#define TXD TASK(0x51Cu)
#define BAUDRATE TASK(0x524u)

/* Pins beyond the first 32 are those of another port. */
#define PORT(pin) (0x50000000u + 0x300u * ((pin) / 32u))
#define OUTSET(pin) EK_REGISTER(PORT(pin) + 0x508u)
#define PIN_CNF(pin) EK_REGISTER(PORT(pin) + 0x700u + 4u * ((pin) % 32u))

uint32_t board_start(void) {
  OUTSET(EK_TX_PIN) = 1u << (EK_TX_PIN % 32u);
  PIN_CNF(EK_TX_PIN) = 3;   /* an output */
  PIN_CNF(EK_RX_PIN) = 0xC; /* an input, pulled up */
  EK_REGISTER(0x40000000u) = 1; /* the crystal: the other one is too inaccurate for the line */
  PSELTXD = EK_TX_PIN;
  PSELRXD = EK_RX_PIN;
  /* Nordic's values are the rate times 2^32 / 16 MHz, rounded to a multiple of 0x1000. */
  BAUDRATE = (uint32_t)((((uint64_t)EK_BAUD << 32) / 16000000u + 0x800u) & ~(uint64_t)0xFFFu);
  ENABLE = 4;
  INTENSET = 1u << 2;
  STARTRX = 1;
  STARTTX = 1;
  return EK_CLOCK;
}

int board_read(void) {
  if (RXDRDY == 0u) {
    return -1;
  }
  RXDRDY = 0;
  if (ERROR != 0u) {
    ERROR = 0;
    ERRORSRC = 15;
  }
  return (int)(RXD & 0xFFu);
}

void board_write(uint8_t byte) {
  TXDRDY = 0;
  TXD = byte;
  while (TXDRDY == 0u) {
  }
}
