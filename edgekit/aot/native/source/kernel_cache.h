/* A GPU's machine code of a model's kernels, kept between starts of a program. */
#ifndef EDGEKIT_KERNEL_CACHE_H
#define EDGEKIT_KERNEL_CACHE_H

#include <stddef.h>

/* `key` tells everything that decides the code. Returns memory to free, or NULL without an entry. */
unsigned char *edgekit_kept_kernels(const char *key, size_t *size);

/* Keeps the code; where no file can be written, the next start compiles again. */
void edgekit_keep_kernels(const char *key, const unsigned char *code, size_t size);

#endif
