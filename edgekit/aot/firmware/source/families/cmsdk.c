/* Arm's own boards (MPS2, MPS3): the CMSDK UART. Their clock needs no setup. */
#include "board.h"

#define DATA EK_REGISTER(EK_UART + 0x00u)
#define STATE EK_REGISTER(EK_UART + 0x04u)
#define CTRL EK_REGISTER(EK_UART + 0x08u)
#define INTSTATUS EK_REGISTER(EK_UART + 0x0Cu)
#define BAUDDIV EK_REGISTER(EK_UART + 0x10u)

#define TX_FULL 1u
#define RX_FULL 2u
#define RX_OVERRUN 8u

uint32_t board_start(void) {
  BAUDDIV = EK_UART_CLOCK / EK_BAUD;
  CTRL = 1u | 2u | 8u; /* send, receive, interrupt on receive */
  return EK_CLOCK;
}

int board_read(void) {
  if ((STATE & RX_FULL) == 0u) {
    return -1;
  }
  int byte = (int)(DATA & 0xFFu);
  STATE = RX_OVERRUN;
  INTSTATUS = 2u;
  return byte;
}

void board_write(uint8_t byte) {
  while ((STATE & TX_FULL) != 0u) {
  }
  DATA = byte;
}
