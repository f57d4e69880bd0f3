/* RV32 in machine mode: the entry, the counter of cycles, and the trap handler. */
#include "board.h"

#define CSR_READ(name)                                   \
  ({                                                     \
    uint32_t value_;                                     \
    __asm__ volatile("csrr %0, " name : "=r"(value_));   \
    value_;                                              \
  })
#define CSR_WRITE(name, value) __asm__ volatile("csrw " name ", %0" ::"r"(value) : "memory")

#define EXTERNAL_INTERRUPT (1u << 11)
#define FPU_ON (1u << 13)
#define GUARD_BYTES 0x10000u
#define PMP_TOR 0x08u
#define PMP_LOCKED 0x80u

void trap_report(const uint32_t *saved, uint32_t sp);
extern uint32_t ek_tls_start[];

/* The first instructions of the firmware, where every chip and emulator begins. */
__attribute__((naked, used, section(".vectors"))) void reset_handler(void) {
  __asm__ volatile(
      ".option push\n"
      ".option norelax\n"
      "la gp, __global_pointer$\n"
      ".option pop\n"
      "la sp, ek_stack_top\n"
      "la tp, ek_tls_start\n"
      "la t0, trap_handler\n"
      "csrw mtvec, t0\n"
      "csrw mie, zero\n"
      "j start\n");
}

/* A stack that overflows faults, instead of changing other memory. A core without memory protection
 * ignores these registers. */
static void guard_stack(void) {
  uintptr_t end = (uintptr_t)ek_stack_start;
  CSR_WRITE("pmpaddr0", (end - GUARD_BYTES) >> 2);
  CSR_WRITE("pmpaddr1", end >> 2);
  CSR_WRITE("pmpcfg0", (uint32_t)(PMP_TOR | PMP_LOCKED) << 8);
}

void machine_start(void) {
  CSR_WRITE("mcountinhibit", 0);
#ifdef __riscv_flen
  __asm__ volatile("csrs mstatus, %0" ::"r"(FPU_ON));
#endif
  guard_stack();
}

/* The core wakes for an interrupt that is pending though interrupts are off. */
void machine_wait(void) {
  CSR_WRITE("mie", EXTERNAL_INTERRUPT);
  __asm__ volatile("wfi" ::: "memory");
}

void machine_reset(void) {
  board_reset();
  for (;;) {
  }
}

uint32_t machine_cpu(void) { return CSR_READ("misa"); }

static uint64_t begun;

static uint64_t cycles(void) {
  uint32_t high, low;
  do {
    high = CSR_READ("mcycleh");
    low = CSR_READ("mcycle");
  } while (high != CSR_READ("mcycleh"));
  return (uint64_t)high << 32 | low;
}

void counter_start(void) { begun = cycles(); }

uint64_t counter_stop(void) { return cycles() - begun; }

/* The stack may be broken: the handler gets a fresh one. */
__attribute__((naked, used, aligned(4))) void trap_handler(void) {
  __asm__ volatile(
      "csrw mscratch, sp\n"
      "la sp, ek_stack_top\n"
      "addi sp, sp, -32\n"
      "sw a0, 0(sp)\n"
      "sw a1, 4(sp)\n"
      "sw a2, 8(sp)\n"
      "sw a3, 12(sp)\n"
      "sw s0, 16(sp)\n"
      "sw ra, 20(sp)\n"
      "mv a0, sp\n"
      "csrr a1, mscratch\n"
      "j trap_report\n");
}

__attribute__((used)) void trap_report(const uint32_t *saved, uint32_t sp) {
  uint32_t report[16] = {0};
  report[0] = CSR_READ("mcause");
  report[1] = CSR_READ("mtval");
  report[6] = sp;
  report[7] = sp >= (uintptr_t)ek_stack_start && sp <= (uintptr_t)ek_stack_top;
  for (uint32_t i = 0; i < 6; i++) {
    report[8 + i] = saved[i]; /* a0 a1 a2 a3 s0 ra */
  }
  report[14] = CSR_READ("mepc");
  report[15] = CSR_READ("mstatus");
  serve_fault(report, 16);
}
