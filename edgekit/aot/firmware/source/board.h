/* The functions that each family of boards defines. config.h is made from the profile. */
#ifndef EDGEKIT_BOARD_H
#define EDGEKIT_BOARD_H

#include <stdint.h>

#include "config.h"

#define EK_REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* families/NAME.c: one for each family. */

/* Start the clock and the serial line; return the core's actual clock in Hz. */
uint32_t board_start(void);
/* Return the next byte from the line, or -1 if none has arrived. */
int board_read(void);
void board_write(uint8_t byte);
#ifdef __riscv
/* RISC-V has no register for it that all chips share. */
void board_reset(void);
/* Newer assemblers take the instructions for control registers to be an extension of their own. */
__asm__(".option arch, +zicsr");
#endif

/* machines/NAME.c: one for each architecture. */

/* Called once, when .data and .bss are as C expects them. */
void machine_start(void);
/* Sleep until the line's interrupt is pending. It is masked, so that no handler is needed. */
void machine_wait(void);
void machine_reset(void);
/* CPUID of an Arm core, misa of a RISC-V core. */
uint32_t machine_cpu(void);
/* Cycles of the core since counter_start(); in QEMU they stand for instructions. */
void counter_start(void);
uint64_t counter_stop(void);

/* start.c */

extern uint32_t ek_stack_start[], ek_stack_top[];
/* Called by the machine after a reset, on an empty stack. */
void start(void);
/* Return the most bytes of stack that were ever in use. */
uint32_t stack_used(void);
uint32_t stack_size(void);

/* serve.c, or energyrunner.c */
void serve(uint32_t clock);
void serve_fault(const uint32_t *report, uint32_t words);

#endif
