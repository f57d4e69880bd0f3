/* Resizes pictures as edgekit does on a host, and turns them into inputs. */
#include "picture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS 100000000
#define FRACTION_BITS 22 /* of a weight in fixed point: 8 bits of pixels, 2 to spare */

const char *app_failure(const char *format, ...) {
  static _Thread_local char kept[512];
  va_list values;
  va_start(values, format);
  vsnprintf(kept, sizeof kept, format, values);
  va_end(values);
  return kept;
}

const char *app_new_picture(int height, int width, int channels, app_picture *picture) {
  if (height < 1 || width < 1) return app_failure("it has no pixels");
  if ((int64_t)height * width > MOST_PIXELS) {
    return app_failure("it has more than %d megapixels", MOST_PIXELS / 1000000);
  }
  picture->height = height, picture->width = width, picture->channels = channels;
  picture->pixels = malloc((size_t)height * (size_t)width * (size_t)channels);
  return picture->pixels == NULL ? app_failure("there is no memory for it") : NULL;
}

void app_free_picture(app_picture *picture) {
  free(picture->pixels);
  picture->pixels = NULL;
}

static int at_least_one(double value) { return value < 1 ? 1 : (int)nearbyint(value); }

static int smaller(int a, int b) { return a < b ? a : b; }

app_placement app_place(const app_rule *rule, int height, int width) {
  const int tall = rule->height, wide = rule->width;
  app_placement place = {0, 0, height, width, tall, wide, 0, 0, tall, wide};
  if (rule->resize == APP_CROP) {
    if ((int64_t)width * tall > (int64_t)wide * height) {
      place.part_width = at_least_one((double)height * wide / tall);
    } else {
      place.part_height = at_least_one((double)width * tall / wide);
    }
    place.top = (height - place.part_height) / 2;
    place.left = (width - place.part_width) / 2;
  }
  if (rule->resize == APP_PAD) {
    const double ratio = fmin((double)tall / height, (double)wide / width);
    place.inner_height = smaller(tall, at_least_one(height * ratio));
    place.inner_width = smaller(wide, at_least_one(width * ratio));
    place.down = rule->centred ? (tall - place.inner_height) / 2 : 0;
    place.across = rule->centred ? (wide - place.inner_width) / 2 : 0;
  }
  return place;
}

/* The pixels along an axis that make one pixel, and their weights: a triangle, as wide as the pixels
   that fall into one. Beyond the part that is resized, the picture's own pixels count. */
typedef struct {
  int first, count;
  int32_t *weights;
} taps;

static void free_taps(taps *all, int count) {
  for (int i = 0; all != NULL && i < count; ++i) free(all[i].weights);
  free(all);
}

static taps *taps_along(int extent, int from, int part, int made) {
  const double step = (double)part / made, width = fmax(step, 1.0);
  taps *all = calloc((size_t)made, sizeof *all);
  double *weights = malloc(((size_t)width * 2 + 4) * sizeof *weights);
  for (int i = 0; all != NULL && weights != NULL && i < made; ++i) {
    const double centre = from + (i + 0.5) * step;
    const double low = centre - width + 0.5;
    const int first = low < 0 ? 0 : (int)low;
    const int last = smaller(extent, (int)(centre + width + 0.5));
    double sum = 0;
    for (int k = first; k < last; ++k) {
      const double distance = fabs((k - centre + 0.5) * (1.0 / width));
      weights[k - first] = distance < 1 ? 1 - distance : 0;
      sum += weights[k - first];
    }
    all[i].first = first, all[i].count = last - first;
    all[i].weights = malloc((size_t)(last - first + 1) * sizeof *all[i].weights);
    if (all[i].weights == NULL) {
      free_taps(all, made);
      all = NULL;
      break;
    }
    for (int k = 0; k < last - first; ++k) {
      const double weight = sum != 0 ? weights[k] / sum : weights[k];
      all[i].weights[k] = (int32_t)(0.5 + weight * (1 << FRACTION_BITS));
    }
  }
  free(weights);
  return all;
}

static uint8_t weighed(const uint8_t *pixels, size_t stride, const taps *one) {
  int32_t sum = 1 << (FRACTION_BITS - 1);
  for (int k = 0; k < one->count; ++k) sum += pixels[(size_t)k * stride] * one->weights[k];
  sum >>= FRACTION_BITS;
  return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One axis: `rows` lines of `from`, each of `made` pixels afterwards. A pixel is `width` numbers, and
   its neighbours along the axis are `width` numbers apart. */
static void resized_along(const uint8_t *from, size_t rows, size_t extent, size_t made, size_t width,
                          const taps *all, uint8_t *to) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < made; ++i) {
      const uint8_t *pixel = from + (row * extent + (size_t)all[i].first) * width;
      for (size_t k = 0; k < width; ++k) {
        to[(row * made + i) * width + k] = weighed(pixel + k, width, &all[i]);
      }
    }
  }
}

/* One axis after the other, with whole pixels in between; Pillow begins with columns where these lose
   twice as many pixels. */
static const char *resized(const app_picture *from, const app_placement *place, app_picture *to) {
  const size_t channels = (size_t)from->channels;
  const size_t height = (size_t)from->height, width = (size_t)from->width;
  const size_t tall = (size_t)place->inner_height, wide = (size_t)place->inner_width;
  const int columns_first =
      tall < height && from->height - place->inner_height > 2 * (from->width - place->inner_width);
  const size_t between_bytes = (columns_first ? tall * width : height * wide) * channels;
  taps *x = taps_along(from->width, place->left, place->part_width, place->inner_width);
  taps *y = taps_along(from->height, place->top, place->part_height, place->inner_height);
  uint8_t *between = malloc(between_bytes);
  const char *failure = app_new_picture(place->inner_height, place->inner_width, from->channels, to);
  if (failure == NULL && (x == NULL || y == NULL || between == NULL)) {
    app_free_picture(to);
    failure = app_failure("there is no memory to resize the picture");
  }
  if (failure == NULL && columns_first) {
    resized_along(from->pixels, 1, height, tall, width * channels, y, between);
    resized_along(between, tall, width, wide, channels, x, to->pixels);
  } else if (failure == NULL) {
    resized_along(from->pixels, height, width, wide, channels, x, between);
    resized_along(between, 1, height, tall, wide * channels, y, to->pixels);
  }
  free(between);
  free_taps(x, place->inner_width);
  free_taps(y, place->inner_height);
  return failure;
}

static const char *recoloured(const app_picture *from, int channels, app_picture *to) {
  const char *failure = app_new_picture(from->height, from->width, channels, to);
  if (failure != NULL) return failure;
  const size_t count = (size_t)from->height * (size_t)from->width;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t *pixel = from->pixels + i * (size_t)from->channels;
    if (from->channels == channels) {
      memcpy(to->pixels + i * (size_t)channels, pixel, (size_t)channels);
    } else if (channels == 1) { /* the weights of ITU-R 601 in 16 bits */
      to->pixels[i] =
          (uint8_t)((19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16);
    } else {
      memset(to->pixels + i * 3, pixel[0], 3);
    }
  }
  return NULL;
}

const char *app_in_colour(app_picture *picture) {
  app_picture made;
  const char *failure = recoloured(picture, 3, &made);
  if (failure != NULL) return failure;
  app_free_picture(picture);
  *picture = made;
  return NULL;
}

/* Rounds to the nearest of float16, to even ones between two. */
static uint16_t half(double value) {
  int exponent;
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double size = fabs(value);
  if (isnan(value)) return sign | 0x7e00;
  frexp(size, &exponent);
  if (exponent < -13) exponent = -13;
  const double steps = nearbyint(ldexp(size, 11 - exponent));
  if (ldexp(steps, exponent - 11) > 65504) return sign | 0x7c00;
  /* An exponent of 1 stands for the smallest normal number, and a carry goes into it. */
  return sign | (uint16_t)(((exponent + 13) << 10) + (int)steps);
}

static const char *store(double value, const app_rule *rule, void *input, size_t place) {
  static const struct {
    const char *name;
    double low, high;
  } whole[] = {{"int8", -128, 127},     {"uint8", 0, 255},
               {"int16", -32768, 32767}, {"uint16", 0, 65535},
               {"int32", -2147483648.0, 2147483647}};
  if (strcmp(rule->dtype, "float32") == 0) return ((float *)input)[place] = (float)value, NULL;
  if (strcmp(rule->dtype, "float64") == 0) return ((double *)input)[place] = value, NULL;
  if (strcmp(rule->dtype, "float16") == 0) return ((uint16_t *)input)[place] = half(value), NULL;
  for (int kind = 0; kind < 5; ++kind) {
    if (strcmp(rule->dtype, whole[kind].name) != 0) continue;
    double stored = nearbyint(value / rule->step + rule->zero);
    stored = stored < whole[kind].low ? whole[kind].low : stored;
    stored = stored > whole[kind].high ? whole[kind].high : stored;
    switch (kind) {
      case 0: ((int8_t *)input)[place] = (int8_t)stored; return NULL;
      case 1: ((uint8_t *)input)[place] = (uint8_t)stored; return NULL;
      case 2: ((int16_t *)input)[place] = (int16_t)stored; return NULL;
      case 3: ((uint16_t *)input)[place] = (uint16_t)stored; return NULL;
      default: ((int32_t *)input)[place] = (int32_t)stored; return NULL;
    }
  }
  return app_failure("this program makes no %s out of a picture", rule->dtype);
}

static const char *computed(const app_picture *picture, const app_rule *rule, void *input) {
  const size_t count = (size_t)rule->height * (size_t)rule->width;
  const size_t channels = (size_t)rule->channels;
  for (size_t i = 0; i < count * channels; ++i) {
    const size_t channel = i % channels, pixel = i / channels;
    const size_t taken = rule->reversed ? channels - 1 - channel : channel;
    const double value = picture->pixels[pixel * channels + taken] * rule->scale;
    const size_t place = rule->planes ? channel * count + pixel : i;
    const char *failure = store((value - rule->mean[channel]) / rule->std[channel], rule, input, place);
    if (failure != NULL) return failure;
  }
  return NULL;
}

const char *app_prepare(const app_picture *picture, const app_rule *rule, void *input,
                        app_placement *place) {
  if (rule->height == 0) return app_failure("the model's input takes no picture");
  app_picture colours = {0, 0, 0, NULL}, inner = {0, 0, 0, NULL}, whole = {0, 0, 0, NULL};
  *place = app_place(rule, picture->height, picture->width);
  const char *failure = recoloured(picture, rule->channels, &colours);
  if (failure == NULL) failure = resized(&colours, place, &inner);
  if (failure == NULL) failure = app_new_picture(rule->height, rule->width, rule->channels, &whole);
  if (failure == NULL) {
    const size_t channels = (size_t)rule->channels;
    const size_t row = (size_t)rule->width * channels, length = (size_t)inner.width * channels;
    memset(whole.pixels, rule->fill, (size_t)rule->height * row);
    for (size_t y = 0; y < (size_t)inner.height; ++y) {
      memcpy(whole.pixels + (y + (size_t)place->down) * row + (size_t)place->across * channels,
             inner.pixels + y * length, length);
    }
    if (rule->on_board) {
      memcpy(input, whole.pixels, (size_t)rule->height * row);
    } else {
      failure = computed(&whole, rule, input);
    }
  }
  app_free_picture(&colours);
  app_free_picture(&inner);
  app_free_picture(&whole);
  return failure;
}
