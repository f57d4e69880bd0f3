/* Files below EDGEKIT_CACHE_DIR, XDG_CACHE_HOME/edgekit or HOME/.cache/edgekit: the length of the key, the
   key, and the code. */
#define _GNU_SOURCE
#include "kernel_cache.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int folder(char *path) {
  const char *own = getenv("EDGEKIT_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  int length = -1;
  if (own != NULL && *own == '/')
    length = snprintf(path, PATH_BYTES, "%s/opencl", own);
  else if (cache != NULL && *cache == '/')
    length = snprintf(path, PATH_BYTES, "%s/edgekit/opencl", cache);
  else if (home != NULL && *home == '/')
    length = snprintf(path, PATH_BYTES, "%s/.cache/edgekit/opencl", home);
  return length > 0 && length < PATH_BYTES - 64 ? length : -1;
}

/* Finds the file of a key: FNV's hash names it, and the file itself tells the key. */
static int file_of(const char *key, char *path) {
  uint64_t hash = 14695981039346656037u;
  const int length = folder(path);
  if (length < 0) return -1;
  for (const char *at = key; *at != '\0'; ++at) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  snprintf(path + length, PATH_BYTES - (size_t)length, "/%016llx", (unsigned long long)hash);
  return length;
}

static void make_folders(char *path) {
  for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
}

unsigned char *edgekit_kept_kernels(const char *key, size_t *size) {
  char path[PATH_BYTES];
  uint64_t length = 0;
  struct stat about;
  unsigned char *code = NULL;
  FILE *file = file_of(key, path) < 0 ? NULL : fopen(path, "rb");
  if (file == NULL) return NULL;
  if (fstat(fileno(file), &about) == 0 && about.st_uid == geteuid() &&
      fread(&length, sizeof length, 1, file) == 1 && length == strlen(key) &&
      (uint64_t)about.st_size > sizeof length + length) {
    char *found = malloc(length);
    *size = (size_t)about.st_size - sizeof length - length;
    code = malloc(*size);
    if (found == NULL || code == NULL || fread(found, 1, length, file) != length ||
        memcmp(found, key, length) != 0 || fread(code, 1, *size, file) != *size) {
      free(code);
      code = NULL;
    }
    free(found);
  }
  fclose(file);
  return code;
}

void edgekit_keep_kernels(const char *key, const unsigned char *code, size_t size) {
  char path[PATH_BYTES], made[PATH_BYTES + 8];
  const uint64_t length = strlen(key);
  if (file_of(key, path) < 0) return;
  make_folders(path);
  snprintf(made, sizeof made, "%s.XXXXXX", path);
  const int handle = mkstemp(made);
  FILE *file = handle < 0 ? NULL : fdopen(handle, "wb");
  if (file == NULL) return;
  const int is_whole = fwrite(&length, sizeof length, 1, file) == 1 &&
                       fwrite(key, 1, length, file) == length && fwrite(code, 1, size, file) == size;
  if (fclose(file) != 0 || !is_whole || rename(made, path) != 0) unlink(made);
}
