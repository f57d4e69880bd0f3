/* Counts instructions of an emulated RV32, as cortex_m_harness/harness.h says. */
#include <stdint.h>
#include <stdio.h>

#include "harness.h"

/* The library's builds are for an architecture that does not name its counters. */
#define READ(name, value) \
  __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, " name "\n.option pop" : "=r"(value))

static uint64_t began;

static uint64_t instructions(void) {
  uint32_t high, low, again;
  do {
    READ("minstreth", high);
    READ("minstret", low);
    READ("minstreth", again);
  } while (high != again);
  return (uint64_t)high << 32 | low;
}

void count_begin(void) { began = instructions(); }

void count_end(const char *name) {
  const uint64_t ended = instructions();
  printf("##count %s %llu\n", name, (unsigned long long)(ended - began));
}
