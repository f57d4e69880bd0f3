/* STM32F405/407 and similar: the PLL on the internal oscillator, a USART of the first kind. */
#include "board.h"

#define RCC 0x40023800u
#define RCC_CR EK_REGISTER(RCC + 0x00u)
#define RCC_PLLCFGR EK_REGISTER(RCC + 0x04u)
#define RCC_CFGR EK_REGISTER(RCC + 0x08u)
#define RCC_AHB1ENR EK_REGISTER(RCC + 0x30u)
#define RCC_APB1ENR EK_REGISTER(RCC + 0x40u)
#define RCC_APB2ENR EK_REGISTER(RCC + 0x44u)
#define FLASH_ACR EK_REGISTER(0x40023C00u)
#define GPIO(port) (0x40020000u + 0x400u * (port))

#define HSI 16000000u
#define PATIENCE 100000u

#define SR EK_REGISTER(EK_UART + 0x00u)
#define DR EK_REGISTER(EK_UART + 0x04u)
#define BRR EK_REGISTER(EK_UART + 0x08u)
#define CR1 EK_REGISTER(EK_UART + 0x0Cu)
#define RXNE (1u << 5)
#define TXE (1u << 7)

/* An emulated chip has no such oscillator, and a broken one may never start. */
static int comes_up(uint32_t reg, uint32_t mask, uint32_t value) {
  for (uint32_t tries = 0; tries < PATIENCE; tries++) {
    if ((EK_REGISTER(reg) & mask) == value) {
      return 1;
    }
  }
  return 0;
}

static uint32_t start_clock(void) {
  RCC_APB1ENR |= 1u << 28; /* the power controller; its voltage scale is 1 after a reset */
  RCC_PLLCFGR = 16u | (EK_CLOCK / 500000u) << 6 | 7u << 24;
  RCC_CR |= 1u << 24;
  if (!comes_up(RCC + 0x00u, 1u << 25, 1u << 25)) {
    return HSI;
  }
  FLASH_ACR = 5u | 7u << 8; /* wait states for 3.3 V; prefetch and caches */
  RCC_CFGR = 5u << 10 | 4u << 13; /* APB1 a quarter, APB2 a half */
  RCC_CFGR |= 2u;
  return comes_up(RCC + 0x08u, 3u << 2, 2u << 2) ? EK_CLOCK : HSI;
}

static void give_pin_to_uart(uint32_t pin) {
  uint32_t gpio = GPIO(pin / 16u), number = pin % 16u;
  RCC_AHB1ENR |= 1u << (pin / 16u);
  (void)RCC_AHB1ENR;
  EK_REGISTER(gpio + 0x0Cu) |= 1u << (2u * number); /* pulled up */
  uint32_t function = gpio + 0x20u + 4u * (number / 8u), place = 4u * (number % 8u);
  EK_REGISTER(function) = (EK_REGISTER(function) & ~(15u << place)) | EK_ALTERNATE << place;
  EK_REGISTER(gpio) = (EK_REGISTER(gpio) & ~(3u << (2u * number))) | 2u << (2u * number);
}

uint32_t board_start(void) {
  uint32_t clock = start_clock();
  give_pin_to_uart(EK_TX_PIN);
  give_pin_to_uart(EK_RX_PIN);
#if EK_UART >= 0x40010000u
  RCC_APB2ENR |= 1u << EK_UART_ENABLE;
  uint32_t bus = clock == HSI ? HSI : clock / 2u;
#else
  RCC_APB1ENR |= 1u << EK_UART_ENABLE;
  uint32_t bus = clock == HSI ? HSI : clock / 4u;
#endif
  BRR = (bus + EK_BAUD / 2u) / EK_BAUD;
  CR1 = 1u << 13 | 1u << 3 | 1u << 2 | 1u << 5; /* on, send, receive, interrupt */
  return clock;
}

/* Reading the status and then the data also clears an overrun. */
int board_read(void) { return (SR & (RXNE | 1u << 3)) == 0u ? -1 : (int)(DR & 0xFFu); }

void board_write(uint8_t byte) {
  while ((SR & TXE) == 0u) {
  }
  DR = byte;
}
