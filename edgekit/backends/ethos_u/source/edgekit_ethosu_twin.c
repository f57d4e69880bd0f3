/* The twin of an Ethos-U: interprets the command stream that Vela makes.
 *
 * Each operation computes its whole output, one element after the other: blocks, banks and waits
 * change when the hardware does something, not what it computes. An element of a chain is asked
 * for at its end, and asks for what it needs. Weights come decoded from the build. Everything else
 * is read where the hardware reads it: feature maps, scales, biases and tables. */
#include "edgekit_ethosu_twin.h"

#include <stddef.h>
#include <string.h>

typedef edgekit_ethosu_npu npu;

uint8_t *edgekit_ethosu_place(const npu *u, int region, uint64_t offset) {
  uint8_t *const memory = u->memory[region & (EDGEKIT_ETHOSU_REGIONS - 1)];
  return memory == NULL ? NULL : memory + (size_t)offset;
}

/* Four tiles: the rows of each column of tiles wrap at a height of their own. */
static uint8_t *element(const feature_map *m, int32_t y, int32_t x, int32_t c) {
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

static int64_t little_endian(const uint8_t *at, int bytes, int is_signed) {
  uint64_t bits = 0;
  const int unused = 64 - 8 * bytes;
  for (int k = bytes - 1; k >= 0; --k) bits = bits << 8 | at[k];
  return is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

static int64_t load(const feature_map *m, int32_t y, int32_t x, int32_t c) {
  const uint8_t *at = element(m, y, x, c);
  if (m->bytes == 1) return m->is_signed ? (int8_t)at[0] : at[0];
  return little_endian(at, m->bytes, m->is_signed || m->bytes > 2);
}

static void store(const feature_map *m, int32_t y, int32_t x, int32_t c, int64_t value) {
  uint8_t *at = element(m, y, x, c);
  for (int k = 0; k < m->bytes; ++k) {
    at[k] = (uint8_t)((uint64_t)value >> (8 * k));
  }
}

static int64_t scaled(int64_t value, const scale *s) {
  const int64_t one = 1;
  if (s->shift == 0) return value * (int64_t)s->factor;
  const int64_t first = s->shift > s->bits ? one << (s->bits - 1) : 0;
  int64_t round = one << (s->shift - 1);
  switch (s->rounding) {
    case ROUND_TWICE: round += value >= 0 ? first : -first; break; /* as LiteRT's two roundings */
    case ROUND_TWICE_UP: round += first; break;
    case ROUND_AWAY: round -= value < 0; break;
    case ROUND_TO_ZERO: round = value >= 0 ? 0 : (one << s->shift) - 1; break;
    case ROUND_DOWN: round = 0; break;
    default: break;
  }
  return (value * (int64_t)s->factor + round) >> s->shift;
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

static int64_t element_of(const operation *o, int32_t y, int32_t x, int32_t c);

/* One operand without its zero point: from memory, a scalar, or of the operation before. */
static int64_t operand(const operation *o, const feature_map *m, int broadcast, int32_t y, int32_t x,
                       int32_t c) {
  if (broadcast & SCALAR) return o->scalar - m->zero_point;
  if (m->chain != NOT_CHAINED) {
    const operation *maker = o - 1;
    while (maker->out.chain != m->chain) --maker;
    int32_t place = (y * o->width + x) * o->depth + c; /* their shapes may differ */
    c = place % maker->depth;
    place /= maker->depth;
    return element_of(maker, place / maker->width, place % maker->width, c) - m->zero_point;
  }
  return load(m, broadcast & ALONG_HEIGHT ? 0 : y, broadcast & ALONG_WIDTH ? 0 : x,
              broadcast & ALONG_DEPTH ? 0 : c) -
         m->zero_point;
}

static int64_t convolved(const operation *o, int32_t oy, int32_t ox, int32_t c) {
  const feature_map *const in = &o->in;
  const int32_t taps = o->command == OP_DEPTHWISE ? 1 : o->inputs;
  const int8_t *const own = o->weights + (ptrdiff_t)c * o->w.rows * o->w.columns * taps;
  int64_t sum = 0;
  for (int32_t ky = 0; ky < o->w.rows; ++ky) {
    for (int32_t kx = 0; kx < o->w.columns; ++kx) {
      int32_t y = oy, x = ox;
      if (!under(&o->w, &y, &x, ky, kx)) continue;
      const int8_t *const weight = own + (ky * o->w.columns + kx) * taps;
      if (o->command == OP_DEPTHWISE) {
        sum += (load(in, y, x, o->inputs == 1 ? 0 : c) - in->zero_point) * weight[0];
        continue;
      }
      for (int32_t first = 0; first < taps; first += 16) { /* a brick is in one piece */
        const int32_t count = taps - first < 16 ? taps - first : 16;
        const int8_t *const pixel = (const int8_t *)element(in, y, x, first);
        int32_t part = 0;
        for (int32_t k = 0; k < count; ++k) {
          const int32_t value = in->is_signed ? pixel[k] : (uint8_t)pixel[k];
          part += (value - in->zero_point) * weight[first + k];
        }
        sum += part;
      }
    }
  }
  return sum;
}

static int64_t pooled(const operation *o, int32_t oy, int32_t ox, int32_t c) {
  const int across = o->mode == POOL_REDUCE_SUM;
  int64_t sum = 0, least = INT64_MAX, most = INT64_MIN;
  int32_t count = 0;
  if (o->mode == POOL_NONE) return 0;
  for (int32_t ky = 0; ky < o->w.rows; ++ky) {
    for (int32_t kx = 0; kx < o->w.columns; ++kx) {
      int32_t y = oy, x = ox;
      if (!under(&o->w, &y, &x, ky, kx)) continue;
      for (int32_t k = 0; k < (across ? o->inputs : 1); ++k) {
        const int64_t value = load(&o->in, y, x, across ? k : c) - o->in.zero_point;
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
      }
      ++count;
    }
  }
  if (o->mode == POOL_MAX) return most;
  if (o->mode == POOL_MIN) return least;
  if (!o->divides || count == 0) return sum;
  return sum >= 0 ? (sum + count / 2) / count : -((-sum + count / 2) / count); /* ties: away */
}

/* The sum before it is scaled. */
static int64_t accumulated(const operation *o, int32_t y, int32_t x, int32_t c) {
  int64_t start = 0;
  if (o->start == START_AT_LAST) start = accumulated(o - 1, y, x, c);
  if (o->start == START_AT_SECOND) start = load(&o->in2, y, x, c) - o->in2.zero_point;
  return start + (o->command == OP_POOL ? pooled(o, y, x, c) : convolved(o, y, x, c));
}

static int64_t combined(const operation *o, int32_t y, int32_t x, int32_t c) {
  int64_t a = operand(o, &o->in, o->broadcast, y, x, c);
  if (o->mode == MODE_ABS) return a < 0 ? -a : a;
  int64_t b = operand(o, &o->in2, o->broadcast2, y, x, c);
  if (o->swapped) {
    const int64_t first = b;
    b = a;
    a = first;
  }
  a = scaled(a, &o->first);
  b = scaled(b, &o->second);
  switch (o->mode) {
    case MODE_MUL: return a * b;
    case MODE_MIN: return a < b ? a : b;
    case MODE_MAX: return a > b ? a : b;
    case MODE_SUB: return a - b;
    case MODE_EQUAL: return -(a == b);
    case MODE_NOT_EQUAL: return -(a != b);
    case MODE_AT_LEAST: return -(a >= b);
    case MODE_MORE: return -(a > b);
    case MODE_AND: return a & b;
    case MODE_OR: return a | b;
    default: return a + b;
  }
}

static int32_t within(const axis *a, int32_t place) {
  return place < 0 ? 0 : place > a->limit ? a->limit : place;
}

/* The nearest pixel along one axis. */
static int32_t nearest(const axis *a, int32_t k) {
  const int32_t at = k * a->step + a->offset + a->numerator; /* positive */
  return within(a, (2 * at + a->numerator) / (2 * a->numerator) - 1);
}

/* Between two pixels along one axis: the first of them, and the weight of the second. */
static int32_t between(const axis *a, int32_t k, int32_t *weight) {
  const int32_t at = k * a->step + a->offset + a->numerator;
  *weight = at % a->numerator;
  return at / a->numerator - 1;
}

static int64_t resized(const operation *o, int32_t y, int32_t x, int32_t c) {
  const axis *const down = &o->resize_y, *const right = &o->resize_x;
  if (o->mode != RESIZE_BILINEAR) return load(&o->in, nearest(down, y), nearest(right, x), c);
  int32_t weights[2][2];
  const int32_t row = between(down, y, &weights[0][1]), column = between(right, x, &weights[1][1]);
  int64_t sum = 0;
  weights[0][0] = down->numerator - weights[0][1];
  weights[1][0] = right->numerator - weights[1][1];
  for (int k = 0; k < 4; ++k) {
    const int64_t value = load(&o->in, within(down, row + k / 2), within(right, column + k % 2), c);
    sum += value * weights[0][k / 2] * weights[1][k % 2];
  }
  return sum;
}

static int64_t before_scaling(const operation *o, int32_t y, int32_t x, int32_t c) {
  if (o->command == OP_ELEMENTWISE) return combined(o, y, x, c);
  if (o->command == OP_RESIZE) return resized(o, y, x, c) * 65536; /* which its shift takes back */
  return accumulated(o, y, x, c);
}

/* Add the bias of a channel, and scale by its factor where it has one. */
static int64_t by_channel(const operation *o, int64_t value, int32_t c) {
  const uint8_t *const at = o->channels[c % o->cores] + SCALE_BYTES * (c / o->cores);
  const int narrow = o->bias_bytes == 6; /* the factor of a sum of 48 bits has 16 */
  scale s = o->result;
  value += little_endian(at, o->bias_bytes, 1);
  if (o->by_channel) {
    s.factor = (uint32_t)little_endian(at + o->bias_bytes, narrow ? 2 : 4, 0);
    s.shift = at[o->bias_bytes + (narrow ? 2 : 4)] & 63;
  }
  return scaled(value, &s);
}

static int64_t element_of(const operation *o, int32_t y, int32_t x, int32_t c) {
  int64_t value = before_scaling(o, y, x, c);
  value = o->channels[0] != NULL ? by_channel(o, value, c) : scaled(value, &o->result);
  value += o->out.zero_point;
  if (o->limited) value = value < o->low ? o->low : value > o->high ? o->high : value;
  if (o->table == NULL) return value;
  return (int8_t)o->table[(o->out.is_signed ? (int)value + 128 : (int)value) & 0xFF];
}

static void store_element(const operation *o, int32_t y, int32_t x, int32_t c, int64_t value) {
  enum { NONE, WHC, HCW, WCH, CHW = 6, CWH = 7 };
  if (o->reverse == 1) y = o->height - 1 - y;
  if (o->reverse == 2) x = o->width - 1 - x;
  if (o->reverse == 3) c = o->depth - 1 - c;
  switch (o->transpose) {
    case WHC: store(&o->out, x, y, c, value); break;
    case HCW: store(&o->out, y, c, x, value); break;
    case WCH: store(&o->out, x, c, y, value); break;
    case CHW: store(&o->out, c, y, x, value); break;
    case CWH: store(&o->out, c, x, y, value); break;
    default: store(&o->out, y, x, c, value); break;
  }
}

static int compute(npu *u, int command, int mode) {
  operation *const o = &u->pending[u->operations];
  edgekit_ethosu_read(u, command, mode, o);
  if (command == OP_CONV || command == OP_DEPTHWISE) ++u->convolutions;
  if (o->keeps || o->out.chain != NOT_CHAINED) {
    return ++u->operations < PENDING ? 0 : -3;
  }
  u->operations = 0;
  for (int32_t y = 0; y < o->height; ++y) {
    for (int32_t x = 0; x < o->width; ++x) {
      for (int32_t c = 0; c < o->depth; ++c) {
        store_element(o, y, x, c, element_of(o, y, x, c));
      }
    }
  }
  return 0;
}

static void copy(npu *u) {
  const int to_region = u->set[DMA0_DST_REGION - FIRST_SET];
  const uint8_t *const from =
      edgekit_ethosu_place(u, u->set[DMA0_SRC_REGION - FIRST_SET], u->payload[DMA0_SRC]);
  const size_t bytes = (size_t)u->payload[DMA0_LEN];
  if (to_region & MEM2MEM) { /* the tables lie at the end of the NPU's own memory */
    const size_t at = (size_t)u->payload[DMA0_DST] % TABLE_BYTES;
    memcpy(u->tables + at, from, bytes < TABLE_BYTES - at ? bytes : TABLE_BYTES - at);
  } else {
    memmove(edgekit_ethosu_place(u, to_region, u->payload[DMA0_DST]), from, bytes);
  }
}

static const uint32_t *stream_of(const edgekit_ethosu_region *region, const uint32_t **end,
                                 int *product) {
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
    if (action == 1 && *end - word > 1) *product = (int)(word[1] >> 28);
    word += action == 1 ? 3 : 1; /* a configuration has two words more */
  }
  return NULL;
}

int edgekit_ethosu_interpret(const edgekit_ethosu_region *region, void *scratch) {
  npu u;
  const uint32_t *end;
  memset(&u, 0, sizeof u);
  const uint32_t *word = stream_of(region, &end, &u.product);
  if (word == NULL) return -1;
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
      case OP_CONV:
      case OP_DEPTHWISE:
      case OP_POOL:
      case OP_ELEMENTWISE:
      case OP_RESIZE: {
        const int status = compute(&u, (int)command, (int)parameter);
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
