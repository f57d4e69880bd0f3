/* A simulator of Tern: it runs a stream of commands on memory of its own, and counts cycles.
 *
 * A stream is 32-bit words, least significant byte first: "TERN", the bytes of SRAM, the bytes of
 * scratch memory, and commands. A command is its code and its operands (commands.py lists them).
 * Nothing of a stream is trusted: every address is checked before it is used.
 *
 * TERN_TRACE=FILE appends each job's cycles and bytes of scratch memory to a file. */
#include "tern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x4e524554 };
enum { LOAD = 1, STORE, CONV, ADD, MOVE, CODES };
enum { INPUT, WEIGHTS, SCRATCH, OUTPUT };
enum { LANES = 16, BUS = 8 }; /* a square of multipliers, and bytes of a transfer, a cycle */

static const int operands[CODES] = {0, 5, 5, 20, 5, 4};

typedef struct {
  const tern_job* job;
  unsigned char *sram, *scratch;
  size_t sram_size, scratch_size;
  uint64_t cycles;
} machine;

static uint64_t parts(uint64_t whole, uint64_t part) { return (whole + part - 1) / part; }

static float relu(float value, uint32_t wanted) {
  return wanted && value < 0 ? 0 : value; /* NaN stays NaN */
}

/* `count` floats of SRAM, or NULL. */
static float* floats(machine* m, uint64_t address, uint64_t count) {
  if (address % sizeof(float) || address > m->sram_size) return NULL;
  if (count > (m->sram_size - address) / sizeof(float)) return NULL;
  return (float*)(m->sram + address);
}

static uint64_t product(const uint32_t* factors, int count) {
  uint64_t made = 1;
  for (int i = 0; i < count; ++i)
    made = factors[i] && made > UINT32_MAX / factors[i] ? UINT32_MAX : made * factors[i];
  return made;
}

static const char* transfer(machine* m, const uint32_t* o, int storing) {
  const uint32_t space = o[0], index = o[1], offset = o[2], address = o[3], bytes = o[4];
  unsigned char* outside = NULL;
  size_t size = 0;
  if (space == SCRATCH) {
    outside = m->scratch, size = m->scratch_size;
  } else if (storing && space == OUTPUT && index < m->job->output_count) {
    outside = (unsigned char*)m->job->outputs[index].data, size = m->job->outputs[index].size;
  } else if (!storing && space == INPUT && index < m->job->input_count) {
    outside = (unsigned char*)m->job->inputs[index].data, size = m->job->inputs[index].size;
  } else if (!storing && space == WEIGHTS) {
    outside = (unsigned char*)m->job->weights, size = m->job->weights_size;
  }
  if (outside == NULL || offset > size || bytes > size - offset)
    return "a transfer leaves the memory outside";
  if (address > m->sram_size || bytes > m->sram_size - address) return "a transfer leaves the SRAM";
  if (storing)
    memcpy(outside + offset, m->sram + address, bytes);
  else
    memcpy(m->sram + address, outside + offset, bytes);
  m->cycles += 32 + parts(bytes, BUS);
  return NULL;
}

static const char* convolve(machine* m, const uint32_t* o) {
  const uint32_t n = o[4], c = o[5], h = o[6], w = o[7], oc = o[8], oh = o[9], ow = o[10];
  const uint32_t kh = o[11], kw = o[12], sy = o[13], sx = o[14], top = o[15], left = o[16];
  const uint32_t dy = o[17], dx = o[18], groups = o[19] >> 1, activated = o[19] & 1;
  if (groups == 0 || c % groups || oc % groups) return "a convolution has odd groups";
  const uint32_t in = c / groups, out = oc / groups;
  const float* x = floats(m, o[0], product((uint32_t[]){n, c, h, w}, 4));
  const float* weight = floats(m, o[1], product((uint32_t[]){oc, in, kh, kw}, 4));
  const float* bias = floats(m, o[2], oc);
  float* y = floats(m, o[3], product((uint32_t[]){n, oc, oh, ow}, 4));
  if (!x || !weight || !bias || !y) return "a convolution leaves the SRAM";
  for (uint64_t b = 0; b < n; ++b)
    for (uint64_t f = 0; f < oc; ++f)
      for (uint64_t i = 0; i < oh; ++i)
        for (uint64_t j = 0; j < ow; ++j) {
          float sum = 0;
          for (uint64_t k = 0; k < in; ++k)
            for (uint64_t p = 0; p < kh; ++p)
              for (uint64_t q = 0; q < kw; ++q) {
                const int64_t row = (int64_t)(i * sy + p * dy) - top;
                const int64_t column = (int64_t)(j * sx + q * dx) - left;
                if (row < 0 || row >= h || column < 0 || column >= w) continue;
                sum += x[((b * c + f / out * in + k) * h + row) * w + column] *
                       weight[((f * in + k) * kh + p) * kw + q];
              }
          *y++ = relu(sum + bias[f], activated);
        }
  const uint64_t squares = groups * parts(in, LANES) * parts(out, LANES);
  m->cycles += 64 + (uint64_t)n * oh * ow * kh * kw * squares;
  return NULL;
}

static const char* combine(machine* m, const uint32_t* o, int adding) {
  const uint32_t count = o[2 + adding], activated = o[3 + adding];
  const float* a = floats(m, o[0], count);
  const float* b = adding ? floats(m, o[1], count) : NULL;
  float* y = floats(m, o[1 + adding], count);
  if (!a || !y || (adding && !b)) return "an addition leaves the SRAM";
  for (uint32_t i = 0; i < count; ++i) y[i] = relu(adding ? a[i] + b[i] : a[i], activated);
  m->cycles += 16 + parts(count, LANES);
  return NULL;
}

static const char* perform(machine* m, const uint32_t* word, size_t count) {
  for (size_t at = 0; at < count;) {
    const uint32_t code = word[at++];
    if (code == 0 || code >= CODES || (size_t)operands[code] > count - at)
      return "a command is unknown or cut off";
    const uint32_t* o = word + at;
    const char* wrong = code == CONV  ? convolve(m, o)
                        : code >= ADD ? combine(m, o, code == ADD)
                                      : transfer(m, o, code == STORE);
    if (wrong) return wrong;
    at += operands[code];
  }
  return NULL;
}

const char* tern_run(const tern_job* job) {
  const uint32_t* word = (const uint32_t*)job->commands;
  const size_t count = job->commands_size / sizeof(uint32_t);
  if (count < 3 || word[0] != MAGIC) return "these are no commands of a Tern";
  machine m = {job, calloc(1, (size_t)word[1] + 1), calloc(1, (size_t)word[2] + 1), word[1], word[2], 0};
  const char* wrong = m.sram && m.scratch ? perform(&m, word + 3, count - 3) : "no memory is left";
  free(m.sram);
  free(m.scratch);
  const char* trace = getenv("TERN_TRACE");
  if (trace && !wrong) {
    FILE* file = fopen(trace, "a");
    if (file == NULL) return "the file of TERN_TRACE can't be written";
    fprintf(file, "%llu %zu\n", (unsigned long long)m.cycles, m.scratch_size);
    fclose(file);
  }
  return wrong;
}
