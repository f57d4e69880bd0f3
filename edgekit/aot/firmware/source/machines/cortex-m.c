/* Cortex-M: vectors, caches, the counter of cycles, and the fault handlers. */
#include "board.h"

#define SYST_CSR EK_REGISTER(0xE000E010u)
#define SYST_RVR EK_REGISTER(0xE000E014u)
#define SYST_CVR EK_REGISTER(0xE000E018u)
#define NVIC_ISER(line) EK_REGISTER(0xE000E100u + 4u * ((line) / 32u))
#define NVIC_ICPR(line) EK_REGISTER(0xE000E280u + 4u * ((line) / 32u))
#define CPUID EK_REGISTER(0xE000ED00u)
#define ICSR EK_REGISTER(0xE000ED04u)
#define AIRCR EK_REGISTER(0xE000ED0Cu)
#define CCR EK_REGISTER(0xE000ED14u)
#define CFSR EK_REGISTER(0xE000ED28u)
#define HFSR EK_REGISTER(0xE000ED2Cu)
#define MMFAR EK_REGISTER(0xE000ED34u)
#define BFAR EK_REGISTER(0xE000ED38u)
#define CPACR EK_REGISTER(0xE000ED88u)

#define SYSTICK_MASK 0xFFFFFFu
#define SYSTICK_PENDING (1u << 26)
#define LINE_BIT(line) (1u << ((line) % 32u))

void reset_handler(void);
void fault_handler(void);
void tick_handler(void);
void fault_report(const uint32_t *frame, uint32_t exc_return);

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)(uintptr_t)ek_stack_top,
    reset_handler,
    fault_handler, /* NMI */
    fault_handler, /* hard fault: the others end here, and CFSR tells them apart */
    fault_handler,
    fault_handler,
    fault_handler,
    fault_handler,
    0,
    0,
    0,
    fault_handler,
    fault_handler,
    0,
    fault_handler,
    tick_handler,
};

static volatile uint32_t wraps;

#if EK_CACHES
#define CLIDR_SETS(ccsidr) (((ccsidr) >> 13) & 0x7FFFu)
#define CLIDR_WAYS(ccsidr) (((ccsidr) >> 3) & 0x3FFu)

static void start_caches(void) {
  EK_REGISTER(0xE000EF50u) = 0; /* ICIALLU */
  EK_REGISTER(0xE000ED84u) = 0; /* CSSELR: the data cache */
  __asm__ volatile("dsb\n isb" ::: "memory");
  uint32_t shape = EK_REGISTER(0xE000ED80u);
  for (uint32_t set = 0; set <= CLIDR_SETS(shape); set++) {
    for (uint32_t way = 0; way <= CLIDR_WAYS(shape); way++) {
      EK_REGISTER(0xE000EF60u) = (set << 5) | (way << 30); /* DCISW */
    }
  }
  __asm__ volatile("dsb" ::: "memory");
  CCR |= (1u << 16) | (1u << 17);
  __asm__ volatile("dsb\n isb" ::: "memory");
}
#endif

void machine_start(void) {
#if EK_CACHES
  start_caches();
#endif
  SYST_RVR = SYSTICK_MASK;
}

void reset_handler(void) {
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
  CPACR |= 0xFu << 20;
#endif
#if defined(__ARM_ARCH_8_1M_MAIN__)
  CCR |= (1u << 18) | (1u << 19); /* branch prediction, low-overhead loops */
#endif
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
  __asm__ volatile("msr msplim, %0" ::"r"(ek_stack_start));
#endif
  __asm__ volatile("dsb\n isb" ::: "memory");
  start();
}

void machine_wait(void) {
  __asm__ volatile("cpsid i" ::: "memory");
  NVIC_ISER(EK_UART_IRQ) = LINE_BIT(EK_UART_IRQ);
  __asm__ volatile("dsb\n wfi" ::: "memory");
  NVIC_ICPR(EK_UART_IRQ) = LINE_BIT(EK_UART_IRQ);
  /* Masked except while cycles are counted: see counter_start. */
}

void machine_reset(void) {
  __asm__ volatile("dsb" ::: "memory");
  AIRCR = 0x05FA0004u;
  for (;;) {
  }
}

uint32_t machine_cpu(void) { return CPUID; }

/* SysTick rather than DWT: every Cortex-M has it, emulated ones too. It counts the
 * core's cycles; each 2^24 of them cost one interrupt. */
void counter_start(void) {
  wraps = 0;
  SYST_CVR = 0;
  EK_REGISTER(0xE000E180u + 4u * (EK_UART_IRQ / 32u)) = LINE_BIT(EK_UART_IRQ); /* NVIC_ICER */
  __asm__ volatile("dsb\n cpsie i\n isb" ::: "memory");
  SYST_CSR = 7u;
}

uint64_t counter_stop(void) {
  uint32_t before, now;
  do {
    before = wraps;
    now = SYST_CVR;
  } while (before != wraps || (ICSR & SYSTICK_PENDING) != 0u);
  SYST_CSR = 0;
  __asm__ volatile("cpsid i" ::: "memory");
  return ((uint64_t)before << 24) + ((SYSTICK_MASK + 1u - now) & SYSTICK_MASK);
}

void tick_handler(void) { wraps++; }

/* The stack may be broken: the fault handler gets a fresh one. */
__attribute__((naked)) void fault_handler(void) {
  __asm__ volatile(
      ".syntax unified\n"
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
      "movs r0, #0\n"
      "msr msplim, r0\n"
#endif
      "mrs r0, msp\n"
      "mov r1, lr\n"
      "ldr r2, =ek_stack_top\n"
      "mov sp, r2\n"
      "ldr r2, =fault_report\n"
      "bx r2\n"
      ".ltorg\n");
}

__attribute__((used)) void fault_report(const uint32_t *frame, uint32_t exc_return) {
  uint32_t report[16] = {0};
  uint32_t exception;
  __asm__ volatile("cpsid i\n mrs %0, ipsr" : "=r"(exception)::"memory");
  SYST_CSR = 0;
  report[0] = exception;
#if defined(__ARM_ARCH_6M__)
  report[1] = report[2] = report[3] = report[4] = 0;
#else
  report[1] = CFSR;
  report[2] = HFSR;
  report[3] = MMFAR;
  report[4] = BFAR;
#endif
  report[5] = exc_return;
  report[6] = (uint32_t)(uintptr_t)frame;
  if (frame >= ek_stack_start && frame + 8 <= ek_stack_top && ((uintptr_t)frame & 3u) == 0u) {
    report[7] = 1;
    for (uint32_t i = 0; i < 8; i++) {
      report[8 + i] = frame[i]; /* r0 r1 r2 r3 r12 lr pc xpsr */
    }
  }
  serve_fault(report, 16);
}
