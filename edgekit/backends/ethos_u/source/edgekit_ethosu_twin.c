/* The twin of an Ethos-U55 or U65: interprets the command stream that Vela makes.
 *
 * Registers are those of Vela's ethos_u55_regs. Each operation computes its whole output, one
 * element after the other: blocks, banks and waits change when the hardware does something, not
 * what it computes. Weights come decoded from the build. Everything else is read where the hardware
 * reads it: feature maps, scales, biases and tables. */
#include "edgekit_ethosu.h"

#include <stddef.h>
#include <string.h>

enum { /* commands without a payload, from 0x100 on, and with one: the index in their arrays */
  OP_STOP = 0x000,
  OP_IRQ = 0x001,
  OP_CONV = 0x002,
  OP_DEPTHWISE = 0x003,
  OP_POOL = 0x005,
  OP_ELEMENTWISE = 0x006,
  OP_DMA_START = 0x010,
  OP_DMA_WAIT = 0x011,
  OP_KERNEL_WAIT = 0x012,
  OP_PMU_MASK = 0x013,
  IFM_PAD_TOP = 0x100,
  IFM_PAD_LEFT = 0x101,
  IFM_PAD_RIGHT = 0x102,
  IFM_PAD_BOTTOM = 0x103,
  IFM_DEPTH_M1 = 0x104,
  IFM_PRECISION = 0x105,
  IFM_UPSCALE = 0x107,
  IFM_ZERO_POINT = 0x109,
  IFM_WIDTH0_M1 = 0x10A,
  IFM_REGION = 0x10F,
  OFM_WIDTH_M1 = 0x111,
  OFM_HEIGHT_M1 = 0x112,
  OFM_DEPTH_M1 = 0x113,
  OFM_PRECISION = 0x114,
  OFM_ZERO_POINT = 0x118,
  OFM_WIDTH0_M1 = 0x11A,
  OFM_REGION = 0x11F,
  KERNEL_WIDTH_M1 = 0x120,
  KERNEL_HEIGHT_M1 = 0x121,
  KERNEL_STRIDE = 0x122,
  ACTIVATION = 0x125,
  ACTIVATION_MIN = 0x126,
  ACTIVATION_MAX = 0x127,
  SCALE_REGION = 0x129,
  DMA0_SRC_REGION = 0x130,
  DMA0_DST_REGION = 0x131,
  IFM2_BROADCAST = 0x180,
  IFM2_SCALAR = 0x181,
  IFM2_PRECISION = 0x185,
  IFM2_ZERO_POINT = 0x189,
  IFM2_WIDTH0_M1 = 0x18A,
  IFM2_REGION = 0x18F,
  FIRST_SET = 0x100,
  LAST_SET = 0x18F,

  IFM_BASE0 = 0x00,
  OFM_BASE0 = 0x10,
  SCALE_BASE = 0x22,
  OFM_SCALE = 0x24,
  OPA_SCALE = 0x25,
  OPB_SCALE = 0x26,
  DMA0_SRC = 0x30,
  DMA0_DST = 0x31,
  DMA0_LEN = 0x32,
  IFM2_BASE0 = 0x80,
  STRIDE_X = 4, /* after a base, as STRIDE_Y and STRIDE_C */
  STRIDE_Y = 5,
  STRIDE_C = 6,
  LAST_PAYLOAD = 0x93
};

enum { POOL_MAX, POOL_AVERAGE, POOL_REDUCE_SUM };
enum { MODE_MUL, MODE_ADD, MODE_SUB, MODE_MIN, MODE_MAX, MODE_LRELU, MODE_ABS, MODE_CLZ, MODE_SHR, MODE_SHL };
enum { ROUND_TFL, ROUND_TRUNCATE, ROUND_NATURAL };
enum { UPSCALE_NONE, UPSCALE_NEAREST, UPSCALE_ZEROS };
enum { TABLE_BYTES = 2048, SCALE_BYTES = 10, MEM2MEM = 0x100 };

typedef struct {
  uint16_t set[LAST_SET - FIRST_SET + 1];
  uint64_t payload[LAST_PAYLOAD + 1]; /* 32 bits, and the 16 of the parameter above them */
  uint8_t tables[TABLE_BYTES];
  uint8_t *memory[EDGEKIT_ETHOSU_REGIONS];
  const int8_t *weights;
  const uint32_t *places;
  uint32_t convolutions;
} npu;

typedef struct { /* a feature map */
  uint8_t *base[4];
  int32_t height[2], width;
  int64_t stride_y, stride_x, stride_c;
  int32_t bytes; /* of an element */
  int is_signed, in_bricks;
  int32_t zero_point;
} map;

static int32_t get(const npu *u, int name) { return u->set[name - FIRST_SET]; }

static int32_t get_signed(const npu *u, int name) { return (int16_t)u->set[name - FIRST_SET]; }

static uint64_t address(const npu *u, int name) { return u->payload[name]; }

static uint8_t *place(const npu *u, int region, uint64_t offset) {
  return u->memory[region & (EDGEKIT_ETHOSU_REGIONS - 1)] + (size_t)offset;
}

static map feature_map(const npu *u, int base, int region, int width0, int zero_point) {
  map m;
  for (int k = 0; k < 4; ++k) {
    m.base[k] = place(u, get(u, region), address(u, base + k));
  }
  m.width = get(u, width0) + 1;
  m.height[0] = get(u, width0 + 1) + 1;
  m.height[1] = get(u, width0 + 2) + 1;
  m.stride_x = (int64_t)address(u, base + STRIDE_X);
  m.stride_y = (int64_t)address(u, base + STRIDE_Y);
  m.stride_c = (int64_t)address(u, base + STRIDE_C);
  m.zero_point = get_signed(u, zero_point);
  return m;
}

static void set_precision(map *m, int32_t precision, int shift) {
  m->is_signed = precision & 1;
  m->bytes = 1 << ((precision >> shift) & 3);
  m->in_bricks = (precision >> 6) & 1;
}

static map input(const npu *u) {
  map m = feature_map(u, IFM_BASE0, IFM_REGION, IFM_WIDTH0_M1, IFM_ZERO_POINT);
  set_precision(&m, get(u, IFM_PRECISION), 2);
  return m;
}

static map second_input(const npu *u) {
  map m = feature_map(u, IFM2_BASE0, IFM2_REGION, IFM2_WIDTH0_M1, IFM2_ZERO_POINT);
  set_precision(&m, get(u, IFM2_PRECISION), 2);
  return m;
}

static map output(const npu *u) {
  map m = feature_map(u, OFM_BASE0, OFM_REGION, OFM_WIDTH0_M1, OFM_ZERO_POINT);
  set_precision(&m, get(u, OFM_PRECISION), 1);
  return m;
}

/* Four tiles: the rows of each column of tiles wrap at a height of their own. */
static uint8_t *element(const map *m, int32_t y, int32_t x, int32_t c) {
  const int right = x >= m->width;
  const int below = y >= m->height[right];
  uint8_t *at = m->base[right + 2 * below];
  if (right) x -= m->width;
  if (below) y -= m->height[right];
  at += y * m->stride_y;
  if (m->in_bricks) {
    return at + (c >> 4) * m->stride_c + ((int64_t)x * 16 + (c & 15)) * m->bytes;
  }
  return at + x * m->stride_x + (int64_t)c * m->bytes;
}

static int32_t load(const map *m, int32_t y, int32_t x, int32_t c) {
  const uint8_t *at = element(m, y, x, c);
  if (m->bytes == 1) return m->is_signed ? (int8_t)at[0] : at[0];
  if (m->bytes == 2) {
    const uint16_t two = (uint16_t)(at[0] | at[1] << 8);
    return m->is_signed ? (int16_t)two : two;
  }
  return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                   (uint32_t)at[3] << 24);
}

static void store(const map *m, int32_t y, int32_t x, int32_t c, int32_t value) {
  uint8_t *at = element(m, y, x, c);
  for (int k = 0; k < m->bytes; ++k) {
    at[k] = (uint8_t)((uint32_t)value >> (8 * k));
  }
}

static int64_t shifted_right(int64_t value, int shift) { /* ties away from zero */
  if (shift <= 0) return value;
  const int64_t half = (int64_t)1 << (shift - 1);
  return value >= 0 ? (value + half) >> shift : -((-value + half) >> shift);
}

/* Twice the upper half of a product, as LiteRT rounds it: ties up. */
static int64_t high_half(int64_t value, int64_t factor) {
  const int64_t product = value * factor;
  const int64_t limit = (int64_t)1 << 31;
  return (product + (product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30))) / limit;
}

static int64_t scaled(int64_t value, uint32_t factor, int shift, int rounding) {
  if (rounding == ROUND_TFL) { /* LiteRT's two roundings */
    return shift < 31 ? high_half(value * ((int64_t)1 << (31 - shift)), factor)
                      : shifted_right(high_half(value, factor), shift - 31);
  }
  const int64_t product = value * (int64_t)factor;
  if (rounding == ROUND_TRUNCATE) return product / ((int64_t)1 << shift);
  return shift == 0 ? product : (product + ((int64_t)1 << (shift - 1))) >> shift;
}

/* The end of every operation: zero point, limits, table. */
static void finish(const npu *u, const map *out, int32_t y, int32_t x, int32_t c, int64_t value) {
  value += out->zero_point;
  if (out->bytes < 4) {
    const int32_t low = get_signed(u, ACTIVATION_MIN), high = get_signed(u, ACTIVATION_MAX);
    value = value < low ? low : value > high ? high : value;
  }
  const int function = get(u, ACTIVATION) & 0x1F;
  if (function >= 16) {
    const uint8_t *table = u->tables + 256 * (function - 16);
    value = (int8_t)table[(out->is_signed ? (int)value + 128 : (int)value) & 0xFF];
  }
  store(out, y, x, c, (int32_t)value);
}

typedef struct {
  int32_t rows, columns, down, right, gap_y, gap_x, top, left, height, width;
  int upscale;
} window;

static window window_of(const npu *u) {
  window w;
  const int32_t stride = get(u, KERNEL_STRIDE);
  w.right = 1 + (stride & 1) + 2 * ((stride >> 6) & 7);
  w.down = 1 + ((stride >> 1) & 1) + 2 * ((stride >> 9) & 7);
  w.gap_x = 1 + ((stride >> 3) & 1);
  w.gap_y = 1 + ((stride >> 4) & 1);
  w.rows = get(u, KERNEL_HEIGHT_M1) / w.gap_y + 1;
  w.columns = get(u, KERNEL_WIDTH_M1) / w.gap_x + 1;
  w.top = get(u, IFM_PAD_TOP);
  w.left = get(u, IFM_PAD_LEFT);
  w.upscale = get(u, IFM_UPSCALE);
  /* The image's extents follow from the output's. */
  w.height = get(u, OFM_HEIGHT_M1) * w.down + get(u, KERNEL_HEIGHT_M1) + 1 - w.top -
             get(u, IFM_PAD_BOTTOM);
  w.width = get(u, OFM_WIDTH_M1) * w.right + get(u, KERNEL_WIDTH_M1) + 1 - w.left -
            get(u, IFM_PAD_RIGHT);
  return w;
}

/* Find the pixel under one element of the window; return 0 for padding. */
static int under(const window *w, int32_t *y, int32_t *x, int32_t ky, int32_t kx) {
  *y = *y * w->down - w->top + ky * w->gap_y;
  *x = *x * w->right - w->left + kx * w->gap_x;
  if (*y < 0 || *x < 0 || *y >= w->height || *x >= w->width) return 0;
  if (w->upscale == UPSCALE_NONE) return 1;
  if (w->upscale == UPSCALE_ZEROS && ((*y | *x) & 1)) return 0;
  *y >>= 1;
  *x >>= 1;
  return 1;
}

typedef struct {
  int64_t bias;
  uint32_t factor;
  int shift;
} channel_scale;

static channel_scale scale_of(const npu *u, int32_t channel) {
  const uint8_t *at = place(u, get(u, SCALE_REGION), address(u, SCALE_BASE)) + SCALE_BYTES * channel;
  channel_scale s;
  uint64_t bits = 0;
  for (int k = 4; k >= 0; --k) bits = bits << 8 | at[k];
  s.bias = (int64_t)(bits << 24) >> 24;
  s.factor = (uint32_t)at[5] | (uint32_t)at[6] << 8 | (uint32_t)at[7] << 16 | (uint32_t)at[8] << 24;
  s.shift = at[9] & 63;
  return s;
}

static int global_scale(const npu *u) { return (get(u, OFM_PRECISION) >> 8) & 1; }

static int rounding_of(const npu *u) { return (get(u, OFM_PRECISION) >> 14) & 3; }

static uint32_t factor_of(const npu *u, int name) { return (uint32_t)address(u, name); }

static int shift_of(const npu *u, int name) { return (int)(address(u, name) >> 32) & 63; }

static void convolve(npu *u, int depthwise) {
  const map in = input(u), out = output(u);
  const window w = window_of(u);
  const int32_t height = get(u, OFM_HEIGHT_M1) + 1, width = get(u, OFM_WIDTH_M1) + 1;
  const int32_t depth = get(u, OFM_DEPTH_M1) + 1, inputs = get(u, IFM_DEPTH_M1) + 1;
  const int32_t taps = depthwise ? 1 : inputs;
  const int rounding = rounding_of(u);
  const int8_t *const weights = u->weights + u->places[u->convolutions++];
  for (int32_t c = 0; c < depth; ++c) {
    channel_scale s = scale_of(u, c);
    if (global_scale(u)) {
      s.factor = factor_of(u, OFM_SCALE);
      s.shift = shift_of(u, OFM_SCALE);
    }
    const int8_t *const own = weights + (ptrdiff_t)c * w.rows * w.columns * taps;
    for (int32_t oy = 0; oy < height; ++oy) {
      for (int32_t ox = 0; ox < width; ++ox) {
        int64_t sum = s.bias;
        for (int32_t ky = 0; ky < w.rows; ++ky) {
          for (int32_t kx = 0; kx < w.columns; ++kx) {
            int32_t y = oy, x = ox;
            if (!under(&w, &y, &x, ky, kx)) continue;
            const int8_t *const weight = own + (ky * w.columns + kx) * taps;
            if (depthwise) {
              sum += (load(&in, y, x, inputs == 1 ? 0 : c) - in.zero_point) * weight[0];
              continue;
            }
            for (int32_t first = 0; first < inputs; first += 16) { /* a brick is in one piece */
              const int32_t count = inputs - first < 16 ? inputs - first : 16;
              const int8_t *const pixel = (const int8_t *)element(&in, y, x, first);
              int32_t part = 0;
              for (int32_t k = 0; k < count; ++k) {
                const int32_t value = in.is_signed ? pixel[k] : (uint8_t)pixel[k];
                part += (value - in.zero_point) * weight[first + k];
              }
              sum += part;
            }
          }
        }
        finish(u, &out, oy, ox, c, scaled(sum, s.factor, s.shift, rounding));
      }
    }
  }
}

static void pool(const npu *u, int mode) {
  const map in = input(u), out = output(u);
  const window w = window_of(u);
  const int32_t height = get(u, OFM_HEIGHT_M1) + 1, width = get(u, OFM_WIDTH_M1) + 1;
  const int32_t depth = get(u, OFM_DEPTH_M1) + 1, inputs = get(u, IFM_DEPTH_M1) + 1;
  const int padded = w.top || w.left || get(u, IFM_PAD_BOTTOM) || get(u, IFM_PAD_RIGHT);
  for (int32_t c = 0; c < depth; ++c) {
    for (int32_t oy = 0; oy < height; ++oy) {
      for (int32_t ox = 0; ox < width; ++ox) {
        int64_t sum = 0, largest = INT32_MIN;
        int32_t count = 0;
        for (int32_t ky = 0; ky < w.rows; ++ky) {
          for (int32_t kx = 0; kx < w.columns; ++kx) {
            int32_t y = oy, x = ox;
            if (!under(&w, &y, &x, ky, kx)) continue;
            const int32_t end = mode == POOL_REDUCE_SUM ? inputs : 1;
            for (int32_t k = 0; k < end; ++k) {
              const int64_t value =
                  (int64_t)load(&in, y, x, mode == POOL_REDUCE_SUM ? k : c) - in.zero_point;
              sum += value;
              largest = value > largest ? value : largest;
            }
            ++count;
          }
        }
        if (mode == POOL_MAX) {
          sum = largest;
        } else if (!padded) {
          sum = scaled(sum, factor_of(u, OFM_SCALE), shift_of(u, OFM_SCALE), rounding_of(u));
        } else if (count != 0) { /* the NPU's own average, ties away from zero */
          sum = sum >= 0 ? (sum + count / 2) / count : -((-sum + count / 2) / count);
        }
        finish(u, &out, oy, ox, c, sum);
      }
    }
  }
}

static int64_t combined(int mode, int64_t a, int64_t b) {
  switch (mode) {
    case MODE_MUL: return a * b;
    case MODE_MIN: return a < b ? a : b;
    case MODE_MAX: return a > b ? a : b;
    case MODE_ABS: return a < 0 ? -a : a;
    case MODE_SUB: return a - b;
    default: return a + b;
  }
}

/* One side of a sum. One of both has a factor of 32 bits, the other none. */
static int64_t side(const npu *u, int64_t value, int is_first, uint32_t which) {
  if (which == 0) {
    return value * (int64_t)(uint16_t)factor_of(u, is_first ? OPA_SCALE : OPB_SCALE);
  }
  if ((which == 1) != (is_first != 0)) return value * ((int64_t)1 << 19);
  const int shift = shift_of(u, OPA_SCALE);
  return shifted_right(high_half(value * ((int64_t)1 << 20), factor_of(u, OPA_SCALE)), shift - 11);
}

static int elementwise(const npu *u, int mode) {
  const map in = input(u), out = output(u);
  const int32_t height = get(u, OFM_HEIGHT_M1) + 1, width = get(u, OFM_WIDTH_M1) + 1;
  const int32_t depth = get(u, OFM_DEPTH_M1) + 1, broadcast = get(u, IFM2_BROADCAST);
  const int binary = mode <= MODE_MAX;
  const int sum = mode == MODE_ADD || mode == MODE_SUB;
  const uint32_t which = (uint32_t)(get(u, IFM_PRECISION) >> 8) & 3;
  const int scales = global_scale(u);
  const map in2 = binary && !(broadcast & 0x80) ? second_input(u) : in;
  if (mode == MODE_LRELU || mode > MODE_ABS) return -3;
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int32_t c = 0; c < depth; ++c) {
        int64_t a = (int64_t)load(&in, y, x, c) - in.zero_point, b = 0;
        if (binary) {
          b = broadcast & 0x80
                  ? get_signed(u, IFM2_SCALAR)
                  : load(&in2, broadcast & 1 ? 0 : y, broadcast & 2 ? 0 : x, broadcast & 4 ? 0 : c);
          b -= get_signed(u, IFM2_ZERO_POINT);
        }
        if (binary && broadcast & 0x40) { /* the operands' order, which their scales follow */
          const int64_t first = b;
          b = a;
          a = first;
        }
        if (sum && in.bytes < 4) {
          a = side(u, a, 1, which);
          b = side(u, b, 0, which);
        }
        int64_t value = combined(mode, a, b);
        if (scales) {
          value = scaled(value, factor_of(u, OFM_SCALE), shift_of(u, OFM_SCALE), rounding_of(u));
        }
        finish(u, &out, y, x, c, value);
      }
    }
  }
  return 0;
}

static void copy(npu *u) {
  const uint8_t *const from = place(u, get(u, DMA0_SRC_REGION), address(u, DMA0_SRC));
  const size_t bytes = (size_t)address(u, DMA0_LEN);
  if (get(u, DMA0_DST_REGION) & MEM2MEM) { /* the tables lie at the end of the NPU's own memory */
    const size_t at = (size_t)address(u, DMA0_DST) % TABLE_BYTES;
    memcpy(u->tables + at, from, bytes < TABLE_BYTES - at ? bytes : TABLE_BYTES - at);
  } else {
    memmove(place(u, get(u, DMA0_DST_REGION), address(u, DMA0_DST)), from, bytes);
  }
}

static const uint32_t *stream_of(const edgekit_ethosu_region *region, const uint32_t **end) {
  const uint32_t *word = (const uint32_t *)region->commands;
  *end = word + region->commands_bytes / 4;
  for (++word; word < *end;) { /* past "COP1" */
    const uint32_t action = *word & 0xFF;
    if (action == 2) { /* the command stream */
      const uint32_t words = (*word >> 16) | (*word & 0xFF00) << 8;
      ++word;
      if ((size_t)(*end - word) < words) return NULL;
      *end = word + words;
      return word;
    }
    word += action == 1 ? 3 : 1; /* a configuration has two words more */
  }
  return NULL;
}

int edgekit_ethosu_interpret(const edgekit_ethosu_region *region, void *scratch) {
  npu u;
  const uint32_t *end;
  const uint32_t *word = stream_of(region, &end);
  if (word == NULL) return -1;
  memset(&u, 0, sizeof u);
  u.weights = region->weights;
  u.places = region->places;
  u.memory[region->fast_region] = (uint8_t *)scratch + region->scratch_bytes;
  u.memory[region->scratch_region] = (uint8_t *)scratch;
  u.memory[region->constants_region] = (uint8_t *)(uintptr_t)region->constants;
  while (word < end) {
    const uint32_t command = *word & 0x3FF, parameter = *word >> 16;
    const int has_payload = (*word & 0xC000) == 0x4000;
    const uint32_t payload = has_payload && word + 1 < end ? word[1] : 0;
    word += has_payload ? 2 : 1;
    if (has_payload) {
      if (command > LAST_PAYLOAD) return -2;
      u.payload[command] = (uint64_t)parameter << 32 | payload;
      continue;
    }
    if (command >= FIRST_SET) {
      if (command > LAST_SET) return -2;
      u.set[command - FIRST_SET] = (uint16_t)parameter;
      continue;
    }
    switch (command) {
      case OP_STOP: return 0;
      case OP_CONV: convolve(&u, 0); break;
      case OP_DEPTHWISE: convolve(&u, 1); break;
      case OP_POOL: pool(&u, (int)parameter); break;
      case OP_ELEMENTWISE: {
        const int status = elementwise(&u, (int)parameter);
        if (status != 0) return status;
        break;
      }
      case OP_DMA_START: copy(&u); break;
      case OP_IRQ:
      case OP_DMA_WAIT:
      case OP_KERNEL_WAIT:
      case OP_PMU_MASK: break;
      default: return -2;
    }
  }
  return 0;
}
