/* STM32F7 and STM32H7: the PLL on the internal oscillator, a USART of the second kind. */
#include "board.h"

#ifndef EK_SUPPLY
/* How an STM32H7's board feeds its core: bits 0 to 5 of PWR_CR3. The chip takes them once after power
 * comes on, and wrong ones make it unreachable until then; without them its clock stays as it is. */
#define EK_SUPPLY 0
#endif

#define GPIO(port) (EK_GPIO + 0x400u * (port))
#define IS_H7 (EK_GPIO >= 0x58000000u)

#define CR1 EK_REGISTER(EK_UART + 0x00u)
#define BRR EK_REGISTER(EK_UART + 0x0Cu)
#define ISR EK_REGISTER(EK_UART + 0x1Cu)
#define ICR EK_REGISTER(EK_UART + 0x20u)
#define RDR EK_REGISTER(EK_UART + 0x24u)
#define TDR EK_REGISTER(EK_UART + 0x28u)
#define RXNE (1u << 5)
#define ALL_ERRORS 0xFu
#define PATIENCE 100000u

/* A broken oscillator or supply may never be ready. */
static int comes_up(uint32_t reg, uint32_t mask, uint32_t value) {
  for (uint32_t tries = 0; tries < PATIENCE; tries++) {
    if ((EK_REGISTER(reg) & mask) == value) {
      return 1;
    }
  }
  return 0;
}

#if IS_H7
#define HSI 64000000u
#define RCC(offset) (0x58024400u + (offset))
#define PWR(offset) (0x58024800u + (offset))

static uint32_t start_clock(void) {
  if (EK_SUPPLY == 0 || EK_CLOCK <= HSI) {
    return HSI;
  }
  EK_REGISTER(PWR(0x0Cu)) = (EK_REGISTER(PWR(0x0Cu)) & ~0x3Fu) | EK_SUPPLY;
  if (!comes_up(PWR(0x04u), 1u << 13, 1u << 13)) {
    return HSI;
  }
  EK_REGISTER(PWR(0x18u)) |= 3u << 14; /* the voltage for up to 400 MHz */
  if (!comes_up(PWR(0x18u), 1u << 13, 1u << 13)) {
    return HSI;
  }
  EK_REGISTER(RCC(0x28u)) = 8u << 4;             /* 8 MHz into the PLL */
  EK_REGISTER(RCC(0x2Cu)) = 3u << 2 | 1u << 16;  /* for 8 to 16 MHz; its first output alone */
  EK_REGISTER(RCC(0x30u)) = (EK_CLOCK / 4000000u - 1u) | 1u << 9;
  EK_REGISTER(RCC(0x00u)) |= 1u << 24;
  if (!comes_up(RCC(0x00u), 1u << 25, 1u << 25)) {
    return HSI;
  }
  EK_REGISTER(0x52002000u) = 4u | 2u << 4; /* wait states of the flash */
  EK_REGISTER(RCC(0x18u)) = 8u | 4u << 4;  /* half for memory, and half of that for each bus */
  EK_REGISTER(RCC(0x1Cu)) = 4u << 4 | 4u << 8;
  EK_REGISTER(RCC(0x20u)) = 4u << 4;
  EK_REGISTER(RCC(0x10u)) = (EK_REGISTER(RCC(0x10u)) & ~7u) | 3u;
  return comes_up(RCC(0x10u), 7u << 3, 3u << 3) ? EK_CLOCK : HSI;
}
#else
#define HSI 16000000u
#define RCC(offset) (0x40023800u + (offset))
#define PWR(offset) (0x40007000u + (offset))

/* The voltage scale is 1 after a reset. Beyond 180 MHz it wants the over-drive. */
static int over_drives(void) {
  EK_REGISTER(PWR(0x00u)) |= 1u << 16;
  if (!comes_up(PWR(0x04u), 1u << 16, 1u << 16)) {
    return 0;
  }
  EK_REGISTER(PWR(0x00u)) |= 1u << 17;
  return comes_up(PWR(0x04u), 1u << 17, 1u << 17);
}

static uint32_t start_clock(void) {
  if (EK_CLOCK <= HSI) {
    return HSI;
  }
  EK_REGISTER(RCC(0x40u)) |= 1u << 28; /* the power controller */
  (void)EK_REGISTER(RCC(0x40u));
  EK_REGISTER(RCC(0x04u)) = 8u | (EK_CLOCK / 1000000u) << 6 | 9u << 24;
  EK_REGISTER(RCC(0x00u)) |= 1u << 24;
  if (!comes_up(RCC(0x00u), 1u << 25, 1u << 25) || (EK_CLOCK > 180000000u && !over_drives())) {
    return HSI;
  }
  EK_REGISTER(0x40023C00u) = 7u | 3u << 8; /* wait states for 3.3 V; prefetch and the accelerator */
  EK_REGISTER(RCC(0x08u)) = 5u << 10 | 4u << 13; /* APB1 a quarter, APB2 a half */
  EK_REGISTER(RCC(0x08u)) |= 2u;
  return comes_up(RCC(0x08u), 3u << 2, 2u << 2) ? EK_CLOCK : HSI;
}
#endif

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
  uint32_t clock = start_clock();
  give_pin_to_uart(EK_TX_PIN);
  give_pin_to_uart(EK_RX_PIN);
  EK_REGISTER(EK_BUS_ENABLE) |= 1u << EK_UART_ENABLE;
  (void)EK_REGISTER(EK_BUS_ENABLE);
  uint32_t bus = clock == EK_CLOCK ? EK_UART_CLOCK : HSI;
  BRR = (bus + EK_BAUD / 2u) / EK_BAUD;
  CR1 = 1u | 1u << 3 | 1u << 2 | 1u << 5; /* on, send, receive, interrupt */
  return clock;
}

int board_read(void) {
  uint32_t state = ISR;
  ICR = state & ALL_ERRORS;
  return (state & RXNE) == 0u ? -1 : (int)(RDR & 0xFFu);
}

void board_write(uint8_t byte) {
  while ((ISR & 1u << 7) == 0u) {
  }
  TDR = byte;
}
