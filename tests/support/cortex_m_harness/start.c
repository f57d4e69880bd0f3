/* A Cortex-M from its reset to main() and out again: for tests in QEMU, with semihosting. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

extern uint8_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];
extern void initialise_monitor_handles(void);
int main(void);
void reset(void);
void fault(void);
void tick(void);

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYST_CSR REGISTER(0xE000E010u)
#define SYST_RVR REGISTER(0xE000E014u)
#define SYST_CVR REGISTER(0xE000E018u)
#define ICSR REGISTER(0xE000ED04u)
#define CPACR REGISTER(0xE000ED88u)
#define CFSR REGISTER(0xE000ED28u)
#define RELOAD 0xFFFFFFu

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)(uintptr_t)stack_top, reset, fault, fault, fault, fault, fault, fault,
    fault, fault, fault, fault, fault, fault, fault, tick};

static volatile uint32_t wraps;
static uint64_t began;

static uint64_t ticks(void) {
  uint32_t before, now;
  do {
    before = wraps;
    now = SYST_CVR;
  } while (before != wraps || (ICSR & (1u << 26)));
  return (uint64_t)before * (RELOAD + 1u) + (RELOAD - now);
}

void count_begin(void) { began = ticks(); }

void count_end(const char *name) {
  uint64_t ended = ticks();
  printf("##count %s %llu\n", name, (unsigned long long)(ended - began));
}

void tick(void) { wraps++; }

/* Without the C library, which may be what failed. */
static void leave(uint32_t status) {
  volatile uint32_t block[2] = {0x20026u, status};
  register uint32_t r0 __asm__("r0") = 0x20u;
  register volatile uint32_t *r1 __asm__("r1") = block;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  for (;;) {
  }
}

void fault(void) {
  /* No printf: the stack may be what is broken. SYS_WRITE0. */
  register uint32_t r0 __asm__("r0") = 0x04u;
  register const char *r1 __asm__("r1") = "##fault\n";
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  leave(99u);
}

void reset(void) {
  memcpy(data_start, data_load, (size_t)(data_end - data_start));
  memset(bss_start, 0, (size_t)(bss_end - bss_start));
  CPACR |= 0xFu << 20;
  __asm__ volatile("dsb\n isb");
  SYST_RVR = RELOAD;
  SYST_CVR = 0;
  SYST_CSR = 7u;
  initialise_monitor_handles();
  int status = main();
  fflush(stdout);
  leave((uint32_t)status);
}
