/* RP2040 and RP2350: the PLL on a crystal of 12 MHz, and Arm's PrimeCell UART. */
#include "board.h"

#define CRYSTAL 12000000u
#define SET(address) EK_REGISTER((address) + 0x2000u)
#define CLEAR(address) EK_REGISTER((address) + 0x3000u)

#define RESETS_DONE EK_REGISTER(EK_RESETS + 0x08u)
#define REFERENCE EK_REGISTER(EK_CLOCKS + 0x30u)
#define REFERENCE_NOW EK_REGISTER(EK_CLOCKS + 0x38u)
#define SYSTEM (EK_CLOCKS + 0x3Cu)
#define SYSTEM_NOW EK_REGISTER(EK_CLOCKS + 0x44u)
#define PERIPHERALS EK_REGISTER(EK_CLOCKS + 0x48u)
#define CRYSTAL_CTRL EK_REGISTER(EK_XOSC + 0x00u)
#define CRYSTAL_STATE EK_REGISTER(EK_XOSC + 0x04u)
#define CRYSTAL_DELAY EK_REGISTER(EK_XOSC + 0x0Cu)
#define PLL_STATE EK_REGISTER(EK_PLL + 0x00u)
#define PLL_OFF (EK_PLL + 0x04u)
#define PLL_FEEDBACK EK_REGISTER(EK_PLL + 0x08u)
#define PLL_DIVIDERS EK_REGISTER(EK_PLL + 0x0Cu)
#define PAD(pin) EK_REGISTER(EK_PADS + 0x04u + 4u * (pin))
#define PIN(pin) EK_REGISTER(EK_PINS + 0x04u + 8u * (pin))

#define DATA EK_REGISTER(EK_UART + 0x00u)
#define FLAGS EK_REGISTER(EK_UART + 0x18u)
#define BAUD_WHOLE EK_REGISTER(EK_UART + 0x24u)
#define BAUD_FRACTION EK_REGISTER(EK_UART + 0x28u)
#define LINE EK_REGISTER(EK_UART + 0x2Cu)
#define CONTROL EK_REGISTER(EK_UART + 0x30u)
#define INTERRUPTS EK_REGISTER(EK_UART + 0x38u)
#define RX_EMPTY 0x10u
#define TX_FULL 0x20u

#if CRYSTAL / 1000u * EK_FEEDBACK / (EK_DIVIDER_1 * EK_DIVIDER_2) != EK_CLOCK / 1000u
#error "the clock is 12 MHz * feedback / (divider_1 * divider_2)"
#endif

#if defined(__ARM_ARCH_6M__)
/* The boot loader in ROM copies these 256 bytes to RAM, checks their CRC in the last word, and runs
 * them: they let the core read any flash in its simplest way, and start the firmware behind them. */
__attribute__((naked, used, section(".boot"))) void boot_from_flash(void) {
  __asm__ volatile(
      ".syntax unified\n"
      "1: ldr r3, =0x18000000\n" /* the flash's controller: off */
      "movs r1, #0\n"
      "str r1, [r3, #0x08]\n"
      "movs r1, #4\n" /* a quarter of the core's clock */
      "str r1, [r3, #0x14]\n"
      "ldr r1, =0x001F0300\n" /* words of 32 bits, each after an address */
      "str r1, [r3, #0x00]\n"
      "ldr r0, =0x180000F4\n"
      "ldr r1, =0x03000218\n" /* the command 03h, addresses of 24 bits */
      "str r1, [r0]\n"
      "movs r1, #0\n"
      "str r1, [r3, #0x04]\n"
      "movs r1, #1\n"
      "str r1, [r3, #0x08]\n"
      "ldr r0, =0x10000100\n" /* the vectors of the firmware */
      "ldr r1, =0xE000ED08\n"
      "str r0, [r1]\n"
      "ldr r1, [r0]\n"
      "msr msp, r1\n"
      "ldr r0, [r0, #4]\n"
      "bx r0\n"
      ".ltorg\n"
      ".space 252 - (. - 1b)\n"
      ".word 0x6B5414F5\n"); /* by the polynomial 04C11DB7 */
}
#else
/* What the boot loader in ROM looks for: a program for this kind of core. Data sheet, 5.9.5. */
#ifdef __riscv
#define PROGRAM 0x11010142u
#else
#define PROGRAM 0x10210142u
#endif
__attribute__((used, section(".vectors.image"))) static const uint32_t image[] = {
    0xFFFFDED3u, PROGRAM, 0x000001FFu, 0u, 0xAB123579u};
#endif

static void leave_reset(uint32_t blocks) {
  SET(EK_RESETS) = blocks;
  CLEAR(EK_RESETS) = blocks;
  while ((RESETS_DONE & blocks) != blocks) {
  }
}

static void start_clock(void) {
  CRYSTAL_DELAY = 47; /* a millisecond */
  CRYSTAL_CTRL = 0xFABAA0u;
  while ((CRYSTAL_STATE & 1u << 31) == 0u) {
  }
  CLEAR(SYSTEM) = 1;
  while (SYSTEM_NOW != 1u) {
  }
  REFERENCE = 2;
  while (REFERENCE_NOW != 1u << 2) {
  }
  leave_reset(1u << EK_PLL_RESET);
  PLL_STATE = 1;
  PLL_FEEDBACK = EK_FEEDBACK;
  CLEAR(PLL_OFF) = 1u << 5 | 1u;
  while ((PLL_STATE & 1u << 31) == 0u) {
  }
  PLL_DIVIDERS = EK_DIVIDER_1 << 16 | EK_DIVIDER_2 << 12;
  CLEAR(PLL_OFF) = 1u << 3;
  EK_REGISTER(SYSTEM) = 0;
  EK_REGISTER(SYSTEM) = 1;
  while (SYSTEM_NOW != 1u << 1) {
  }
  PERIPHERALS = 1u << 11 | 4u << 5; /* the crystal */
}

static void give_pin_to_uart(uint32_t pin) {
  PAD(pin) = 0x5A; /* connected, pulled up */
  PIN(pin) = 2;
}

uint32_t board_start(void) {
  start_clock();
  leave_reset(1u << EK_PINS_RESET | 1u << EK_PADS_RESET | 1u << EK_UART_RESET);
  give_pin_to_uart(EK_TX_PIN);
  give_pin_to_uart(EK_RX_PIN);
  const uint32_t sixty_fourths = (CRYSTAL * 4u + EK_BAUD / 2u) / EK_BAUD;
  BAUD_WHOLE = sixty_fourths / 64u;
  BAUD_FRACTION = sixty_fourths % 64u;
  LINE = 0x60;       /* eight bits, no queue: each byte is an interrupt */
  INTERRUPTS = 0x10; /* on receive */
  CONTROL = 0x301;   /* on, send, receive */
#ifdef __riscv
  /* Hazard3's own register of interrupts that are on: sixteen of them, and which sixteen. */
  __asm__ volatile("csrs 0xBE0, %0" ::"r"(1u << (EK_UART_IRQ % 16u + 16u) | EK_UART_IRQ / 16u));
#endif
  return EK_CLOCK;
}

int board_read(void) { return (FLAGS & RX_EMPTY) != 0u ? -1 : (int)(DATA & 0xFFu); }

void board_write(uint8_t byte) {
  while ((FLAGS & TX_FULL) != 0u) {
  }
  DATA = byte;
}

#ifdef __riscv
/* Through the watchdog, which resets all but the oscillators. */
void board_reset(void) {
  EK_REGISTER(0x40018008u) = 0x01FFFFF3u;
  EK_REGISTER(0x400D8000u) = 1u << 31;
}
#endif
