/* Reads an operation from the registers: those of Vela's ethos_u55_regs, and of the Ethos-U85. */
#include "edgekit_ethosu_twin.h"

#include <stddef.h>
#include <string.h>

typedef edgekit_ethosu_npu npu;

static int32_t get(const npu *u, int name) { return u->set[name - FIRST_SET]; }

static int32_t get_signed(const npu *u, int name) { return (int16_t)u->set[name - FIRST_SET]; }

static int32_t bits(int32_t value, int first, int count) { return value >> first & ((1 << count) - 1); }

static feature_map map_of(const npu *u, int base, int region, int width0, int zero_point) {
  feature_map m;
  for (int k = 0; k < 4; ++k) {
    m.base[k] = edgekit_ethosu_place(u, get(u, region), u->payload[base + k]);
  }
  m.width = get(u, width0) + 1;
  m.height[0] = get(u, width0 + 1) + 1;
  m.height[1] = get(u, width0 + 2) + 1;
  m.stride_x = (int64_t)u->payload[base + STRIDE_X];
  m.stride_y = (int64_t)u->payload[base + STRIDE_Y];
  m.stride_c = (int64_t)u->payload[base + STRIDE_C];
  m.zero_point = get_signed(u, zero_point);
  return m;
}

static void set_precision(const npu *u, feature_map *m, int precision, int shift, int region) {
  const int32_t value = get(u, precision);
  m->is_signed = value & 1;
  m->bytes = 1 << bits(value, shift, 2);
  m->in_bricks = bits(value, 6, 1);
  m->chain = NOT_CHAINED;
  if (u->product == PRODUCT_U85 && bits(value, 14, 2) == 2) m->chain = get(u, region);
}

static window window_of(const npu *u) {
  window w;
  const int32_t stride = get(u, KERNEL_STRIDE);
  const int32_t bottom = get(u, IFM_PAD_BOTTOM), right = get(u, IFM_PAD_RIGHT);
  w.right = 1 + bits(stride, 0, 1) + 2 * bits(stride, 6, 3);
  w.down = 1 + bits(stride, 1, 1) + 2 * bits(stride, 9, 3);
  w.gap_x = 1 + bits(stride, 3, 1);
  w.gap_y = 1 + bits(stride, 4, 1);
  w.rows = get(u, KERNEL_HEIGHT_M1) / w.gap_y + 1;
  w.columns = get(u, KERNEL_WIDTH_M1) / w.gap_x + 1;
  w.top = get(u, IFM_PAD_TOP);
  w.left = get(u, IFM_PAD_LEFT);
  w.upscale = get(u, IFM_UPSCALE);
  w.padded = w.top || w.left || bottom || right;
  /* The image's extents follow from the output's. */
  w.height = get(u, OFM_HEIGHT_M1) * w.down + get(u, KERNEL_HEIGHT_M1) + 1 - w.top - bottom;
  w.width = get(u, OFM_WIDTH_M1) * w.right + get(u, KERNEL_WIDTH_M1) + 1 - w.left - right;
  return w;
}

static scale scale_of(uint32_t factor, int shift, int rounding, int first) {
  const scale s = {factor, shift, rounding, first};
  return s;
}

static const uint8_t *channels(const npu *u, int base) {
  return edgekit_ethosu_place(u, get(u, SCALE_REGION), u->payload[base]);
}

/* One side of a sum: one of both has a factor of 32 bits, the other none, or both have 16 bits. */
static scale side(const npu *u, int is_first) {
  const uint64_t own = u->payload[is_first ? OPA_SCALE : OPB_SCALE];
  const int which = bits(get(u, IFM_PRECISION), 8, 2);
  if (which == 0) return scale_of((uint16_t)own, 0, ROUND_UP, 31);
  if ((which == 1) != is_first) return scale_of(1u << 19, 0, ROUND_UP, 31);
  const uint64_t factor = u->payload[OPA_SCALE];
  return scale_of((uint32_t)factor, (int)(factor >> 32) & 63, ROUND_TWICE, 31 - 20);
}

static void read_u55(const npu *u, operation *o) {
  static const int roundings[] = {ROUND_TWICE, ROUND_TO_ZERO, ROUND_UP, ROUND_UP};
  const int32_t precision = get(u, OFM_PRECISION), broadcast = get(u, IFM2_BROADCAST);
  const uint64_t result = u->payload[OFM_SCALE];
  const int rounding = roundings[bits(precision, 14, 2)];
  const int is_global = bits(precision, 8, 1), function = bits(get(u, ACTIVATION), 0, 5);
  const int is_sum = o->mode == MODE_ADD || o->mode == MODE_SUB;
  const scale none = scale_of(1, 0, rounding, 31);
  const scale given = scale_of((uint32_t)result, (int)(result >> 32) & 63, rounding, 31);
  o->result = given;
  if (o->command == OP_POOL) {
    o->divides = o->mode == POOL_AVERAGE && o->w.padded;
    if (o->mode == POOL_MAX || o->divides) o->result = none;
  } else if (o->command == OP_ELEMENTWISE) {
    if (!is_global) o->result = none;
    if (is_sum && o->in.bytes < 4) {
      o->first = side(u, 1);
      o->second = side(u, 0);
    }
    o->broadcast2 = bits(broadcast, 0, 3) | (broadcast & 0x80 ? SCALAR : 0);
    o->scalar = get_signed(u, IFM2_SCALAR);
    o->swapped = bits(broadcast, 6, 1); /* the operands' order, which their scales follow */
  } else {
    o->cores = get(u, PARALLEL_MODE) ? 2 : 1;
    o->channels[0] = channels(u, SCALE_BASE);
    o->channels[1] = channels(u, SCALE1_BASE);
    o->by_channel = !is_global;
    o->bias_bytes = 5;
  }
  o->limited = o->out.bytes < 4;
  if (function >= 16) o->table = u->tables + 256 * (function - 16);
}

static scale scale_of_u85(uint64_t value, int rounding_bits) {
  const int32_t parameter = (int32_t)(value >> 32);
  return scale_of((uint32_t)value & 0x7FFFFFFF, bits(parameter, 0, 6),
                  bits(parameter, 13, rounding_bits), 31 - bits(parameter, 6, 5));
}

static axis axis_of(const npu *u, int scale_n, int offset, int step, int extent) {
  const int32_t parameter = (int32_t)(u->payload[step] >> 32);
  axis a;
  a.numerator = get(u, scale_n) + 1;
  a.step = bits(parameter, 0, 4) * a.numerator + bits((int32_t)u->payload[step], 0, 11);
  a.offset = (bits(get(u, offset), 0, 12) ^ 0x800) - 0x800;
  a.limit = get(u, extent);
  return a;
}

static void read_u85(const npu *u, operation *o) {
  const int32_t precision = get(u, OFM_PRECISION), sums = get(u, ACC_FORMAT);
  o->result = scale_of_u85(u->payload[OFM_SCALE], 3);
  o->divides = o->command == OP_POOL && o->mode == POOL_AVERAGE;
  o->reverse = bits(precision, 9, 2);
  o->transpose = bits(precision, 11, 3);
  o->start = bits(sums, 4, 2);
  o->keeps = bits(sums, 6, 1);
  if (o->command == OP_ELEMENTWISE) {
    o->first = scale_of_u85(u->payload[OPA_SCALE], 1);
    o->second = scale_of_u85(u->payload[OPB_SCALE], 1);
    o->broadcast = bits(get(u, IFM_BROADCAST), 0, 4);
    o->broadcast2 = bits(get(u, IFM2_BROADCAST), 0, 4);
    o->scalar = (int32_t)u->payload[OP_SCALAR];
  } else if (!bits(precision, 8, 1)) {
    o->channels[0] = channels(u, SCALE_BASE);
    o->by_channel = 1;
    o->bias_bytes = bits(sums, 0, 2) == 1 ? 6 : 4;
  }
  if (o->command == OP_RESIZE) {
    o->resize_x = axis_of(u, RESIZE_X_SCALE_N_M1, RESIZE_X_OFFSET, RESIZE_X, KERNEL_WIDTH_M1);
    o->resize_y = axis_of(u, RESIZE_Y_SCALE_N_M1, RESIZE_Y_OFFSET, RESIZE_Y, KERNEL_HEIGHT_M1);
  }
  o->limited = !bits(get(u, ACTIVATION), 12, 1);
  if (bits(get(u, ACTIVATION), 0, 5)) o->table = u->tables + 256 * bits(get(u, ACTIVATION), 5, 3);
}

void edgekit_ethosu_read(const npu *u, int command, int mode, operation *o) {
  memset(o, 0, sizeof *o);
  o->command = command;
  o->mode = mode;
  o->in = map_of(u, IFM_BASE0, IFM_REGION, IFM_WIDTH0_M1, IFM_ZERO_POINT);
  o->in2 = map_of(u, IFM2_BASE0, IFM2_REGION, IFM2_WIDTH0_M1, IFM2_ZERO_POINT);
  o->out = map_of(u, OFM_BASE0, OFM_REGION, OFM_WIDTH0_M1, OFM_ZERO_POINT);
  set_precision(u, &o->in, IFM_PRECISION, 2, IFM_REGION);
  set_precision(u, &o->in2, IFM2_PRECISION, 2, IFM2_REGION);
  set_precision(u, &o->out, OFM_PRECISION, 1, OFM_REGION);
  o->w = window_of(u);
  o->height = get(u, OFM_HEIGHT_M1) + 1;
  o->width = get(u, OFM_WIDTH_M1) + 1;
  o->depth = get(u, OFM_DEPTH_M1) + 1;
  o->inputs = get(u, IFM_DEPTH_M1) + 1;
  o->low = get_signed(u, ACTIVATION_MIN);
  o->high = get_signed(u, ACTIVATION_MAX);
  o->cores = 1;
  o->first = o->second = scale_of(1, 0, ROUND_UP, 31);
  if (u->product == PRODUCT_U85) {
    read_u85(u, o);
  } else {
    read_u55(u, o);
  }
  if (command == OP_CONV || command == OP_DEPTHWISE) {
    o->weights = u->weights + u->places[u->convolutions];
  }
}
