/* Runs a harness on files, where there is no libFuzzer: plain FILE ... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **paths) {
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(paths[i], "rb");
    if (file == NULL) {
      return 2;
    }
    fprintf(stderr, "%s\n", paths[i]);
    uint8_t *data = malloc(1 << 20);
    size_t size = fread(data, 1, 1 << 20, file);
    fclose(file);
    /* A copy of just the size: a step beyond it is seen. */
    uint8_t *tight = malloc(size ? size : 1);
    for (size_t at = 0; at < size; at++) {
      tight[at] = data[at];
    }
    free(data);
    LLVMFuzzerTestOneInput(tight, size);
    free(tight);
  }
  return 0;
}
