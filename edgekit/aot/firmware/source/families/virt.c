/* QEMU's RISC-V machine `virt`: a 16550 UART behind the platform's interrupt controller. */
#include "board.h"

#define UART(register) (*(volatile uint8_t *)(uintptr_t)(EK_UART + (register)))
#define DATA UART(0)
#define INTERRUPTS UART(1)
#define QUEUE UART(2)
#define LINE UART(3)
#define STATE UART(5)
#define RX_FULL 0x01u
#define TX_EMPTY 0x20u

#define PRIORITY EK_REGISTER(EK_PLIC + 4u * EK_UART_IRQ)
#define ENABLED EK_REGISTER(EK_PLIC + 0x2000u + 4u * (EK_UART_IRQ / 32u))
#define THRESHOLD EK_REGISTER(EK_PLIC + 0x200000u)
#define CLAIM EK_REGISTER(EK_PLIC + 0x200004u)

uint32_t board_start(void) {
  const uint32_t divisor = EK_UART_CLOCK / (16u * EK_BAUD);
  LINE = 0x80; /* the next two registers are the divisor's */
  DATA = (uint8_t)divisor;
  INTERRUPTS = (uint8_t)(divisor >> 8);
  LINE = 0x03;       /* eight bits */
  QUEUE = 0x01;      /* a queue for received bytes */
  INTERRUPTS = 0x01; /* on receive */
  PRIORITY = 1;
  THRESHOLD = 0;
  ENABLED = 1u << (EK_UART_IRQ % 32u);
  return EK_CLOCK;
}

int board_read(void) {
  if ((STATE & RX_FULL) != 0u) {
    return (int)DATA;
  }
  CLAIM = CLAIM; /* handled: a later byte makes it pending again */
  return -1;
}

void board_write(uint8_t byte) {
  while ((STATE & TX_EMPTY) == 0u) {
  }
  DATA = byte;
}

void board_reset(void) { EK_REGISTER(EK_RESET) = 0x7777u; }
