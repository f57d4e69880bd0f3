/* Runs a model's library once: run_program LIBRARY INPUT... OUTPUT..., all of them raw bytes. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "edgekit.h"

static void *whole(const char *path, const char *mode, void *data, size_t size) {
  FILE *file = fopen(path, mode);
  size_t done = mode[0] == 'r' ? fread(data, 1, size, file) : fwrite(data, 1, size, file);
  fclose(file);
  if (done != size) exit(3);
  return data;
}

int main(int argc, char **argv) {
  void *library = dlopen(argv[1], RTLD_NOW);
  if (argc < 2 || library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  const edgekit_info *(*info)(void) = (const edgekit_info *(*)(void))dlsym(library, "edgekit_model_info");
  edgekit_program *(*create)(void *, int) =
      (edgekit_program * (*)(void *, int)) dlsym(library, "edgekit_create");
  int (*run)(edgekit_program *, const void *const *, void *const *) =
      (int (*)(edgekit_program *, const void *const *, void *const *))dlsym(library, "edgekit_run");
  const edgekit_info *model = info();
  edgekit_program *program = create(NULL, 2);
  const void *given[16];
  void *made[16];
  for (unsigned k = 0; k < model->inputs; ++k) {
    size_t size = model->input[k].bytes;
    given[k] = whole(argv[2 + k], "rb", malloc(size), size);
  }
  for (unsigned k = 0; k < model->outputs; ++k) made[k] = malloc(model->output[k].bytes);
  int status = run(program, given, made);
  for (unsigned k = 0; k < model->outputs; ++k)
    whole(argv[2 + model->inputs + k], "wb", made[k], model->output[k].bytes);
  return status;
}
