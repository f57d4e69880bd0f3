/* STM32F7 and STM32H7 on their reset oscillator: a USART of the second kind.
 *
 * The clock stays as it is after a reset. What an H7 is told about its power supply can't be taken
 * back without a power cycle, and depends on how its board was wired. */
#include "board.h"

#define GPIO(port) (EK_GPIO + 0x400u * (port))

#define CR1 EK_REGISTER(EK_UART + 0x00u)
#define BRR EK_REGISTER(EK_UART + 0x0Cu)
#define ISR EK_REGISTER(EK_UART + 0x1Cu)
#define ICR EK_REGISTER(EK_UART + 0x20u)
#define RDR EK_REGISTER(EK_UART + 0x24u)
#define TDR EK_REGISTER(EK_UART + 0x28u)
#define RXNE (1u << 5)
#define TXE (1u << 7)
#define ALL_ERRORS 0xFu

static void give_pin_to_uart(uint32_t pin) {
  uint32_t gpio = GPIO(pin / 16u), number = pin % 16u;
  EK_REGISTER(EK_GPIO_ENABLE) |= 1u << (pin / 16u);
  (void)EK_REGISTER(EK_GPIO_ENABLE);
  EK_REGISTER(gpio + 0x0Cu) |= 1u << (2u * number); /* pulled up */
  uint32_t function = gpio + 0x20u + 4u * (number / 8u), place = 4u * (number % 8u);
  EK_REGISTER(function) = (EK_REGISTER(function) & ~(15u << place)) | EK_ALTERNATE << place;
  EK_REGISTER(gpio) = (EK_REGISTER(gpio) & ~(3u << (2u * number))) | 2u << (2u * number);
}

uint32_t board_start(void) {
  give_pin_to_uart(EK_TX_PIN);
  give_pin_to_uart(EK_RX_PIN);
  EK_REGISTER(EK_BUS_ENABLE) |= 1u << EK_UART_ENABLE;
  (void)EK_REGISTER(EK_BUS_ENABLE);
  BRR = (EK_UART_CLOCK + EK_BAUD / 2u) / EK_BAUD;
  CR1 = 1u | 1u << 3 | 1u << 2 | 1u << 5; /* on, send, receive, interrupt */
  return EK_CLOCK;
}

int board_read(void) {
  uint32_t state = ISR;
  ICR = state & ALL_ERRORS;
  return (state & RXNE) == 0u ? -1 : (int)(RDR & 0xFFu);
}

void board_write(uint8_t byte) {
  while ((ISR & TXE) == 0u) {
  }
  TDR = byte;
}
