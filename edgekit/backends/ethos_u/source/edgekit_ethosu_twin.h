/* An operation of an Ethos-U as its registers say it, of both families. Inside the twin only. */
#ifndef EDGEKIT_ETHOSU_TWIN_H
#define EDGEKIT_ETHOSU_TWIN_H

#include "edgekit_ethosu.h"

enum { /* commands without a payload, from 0x100 on, and with one: the index in their arrays */
  OP_STOP = 0x000,
  OP_IRQ = 0x001,
  OP_CONV = 0x002,
  OP_DEPTHWISE = 0x003,
  OP_POOL = 0x005,
  OP_ELEMENTWISE = 0x006,
  OP_RESIZE = 0x007, /* U85 */
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
  IFM_BROADCAST = 0x108, /* U85 */
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
  PARALLEL_MODE = 0x123, /* U65 */
  ACC_FORMAT = 0x124,    /* U85 */
  ACTIVATION = 0x125,
  ACTIVATION_MIN = 0x126,
  ACTIVATION_MAX = 0x127,
  SCALE_REGION = 0x129,
  RESIZE_X_SCALE_N_M1 = 0x12A, /* U85, as the three after it */
  RESIZE_Y_SCALE_N_M1 = 0x12B,
  RESIZE_X_OFFSET = 0x12C,
  RESIZE_Y_OFFSET = 0x12D,
  DMA0_SRC_REGION = 0x130,
  DMA0_DST_REGION = 0x131,
  IFM2_BROADCAST = 0x180,
  IFM2_SCALAR = 0x181, /* U55 */
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
  OPA_SCALE = 0x25, /* U85: IFM_SCALE */
  OPB_SCALE = 0x26, /* U85: IFM2_SCALE */
  OP_SCALAR = 0x27, /* U85 */
  DMA0_SRC = 0x30,
  DMA0_DST = 0x31,
  DMA0_LEN = 0x32,
  IFM2_BASE0 = 0x80,
  SCALE1_BASE = 0x92, /* U65 */
  RESIZE_X = 0x96,    /* U85 */
  RESIZE_Y = 0x97,
  STRIDE_X = 4, /* after a base, as STRIDE_Y and STRIDE_C */
  STRIDE_Y = 5,
  STRIDE_C = 6,
  LAST_PAYLOAD = 0x97
};

enum { PRODUCT_U55, PRODUCT_U65, PRODUCT_U85 };
enum { POOL_MAX, POOL_AVERAGE, POOL_REDUCE_SUM, POOL_SUM, POOL_NONE, POOL_MIN };
enum { MODE_MUL, MODE_ADD, MODE_SUB, MODE_MIN, MODE_MAX, MODE_LRELU, MODE_ABS };
enum { MODE_EQUAL = 16, MODE_NOT_EQUAL, MODE_AT_LEAST, MODE_MORE, MODE_AND = 33, MODE_OR }; /* U85 */
enum { RESIZE_BILINEAR };
enum { ROUND_TWICE, ROUND_UP, ROUND_TWICE_UP, ROUND_AWAY, ROUND_TO_ZERO, ROUND_DOWN };
enum { UPSCALE_NONE, UPSCALE_NEAREST, UPSCALE_ZEROS };
enum { ALONG_HEIGHT = 1, ALONG_WIDTH = 2, ALONG_DEPTH = 4, SCALAR = 8 };
enum { START_AT_ZERO, START_AT_LAST, START_AT_SECOND };
enum { TABLE_BYTES = 2048, SCALE_BYTES = 10, MEM2MEM = 0x100, NOT_CHAINED = -1, PENDING = 6 };

typedef struct { /* a feature map */
  uint8_t *base[4];
  int32_t height[2], width;
  int64_t stride_y, stride_x, stride_c;
  int32_t bytes; /* of an element */
  int is_signed, in_bricks;
  int32_t zero_point;
  int chain; /* the buffer between two operations of a chain, which no memory holds */
} feature_map;

typedef struct {
  int32_t rows, columns, down, right, gap_y, gap_x, top, left, height, width;
  int upscale, padded;
} window;

typedef struct { /* a factor, and how its product is shifted right */
  uint32_t factor;
  int shift, rounding;
  int bits; /* of the first of two roundings */
} scale;

typedef struct {
  int32_t numerator, step, offset, limit;
} axis;

typedef struct {
  int command, mode;
  feature_map in, in2, out;
  window w;
  axis resize_y, resize_x;
  int32_t height, width, depth, inputs; /* of the result before it is transposed; of the input */
  int broadcast, broadcast2, swapped;
  int64_t scalar;
  scale first, second, result;
  const uint8_t *channels[2]; /* biases and factors by channel; NULL for the same of all */
  int cores, by_channel, bias_bytes;
  const int8_t *weights;
  int start, keeps; /* where sums begin, and whether they stay for the next operation */
  int divides;      /* an average divides by the pixels under the window */
  int limited;
  int32_t low, high;
  const uint8_t *table;
  int transpose, reverse;
} operation;

typedef struct {
  uint16_t set[LAST_SET - FIRST_SET + 1];
  uint64_t payload[LAST_PAYLOAD + 1]; /* 32 bits, and the 16 of the parameter above them */
  uint8_t tables[TABLE_BYTES];
  uint8_t *memory[EDGEKIT_ETHOSU_REGIONS];
  const int8_t *weights;
  const uint32_t *places;
  uint32_t convolutions;
  int product;
  operation pending[PENDING]; /* a chain is computed when its last operation is known */
  int operations;
} edgekit_ethosu_npu;

uint8_t *edgekit_ethosu_place(const edgekit_ethosu_npu *u, int region, uint64_t offset);

/* Read one operation from the registers. */
void edgekit_ethosu_read(const edgekit_ethosu_npu *u, int command, int mode, operation *o);

#endif
