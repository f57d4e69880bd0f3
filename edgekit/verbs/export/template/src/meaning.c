#include "meaning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t colours[][3] = {
    {230, 25, 75},  {60, 180, 75},  {0, 130, 200}, {245, 130, 48}, {145, 30, 180}, {70, 240, 240},
    {240, 50, 230}, {210, 245, 60}, {250, 190, 212}, {0, 128, 128}, {255, 225, 25}, {128, 0, 0}};
#define COLOURS ((int)(sizeof colours / sizeof *colours))

const char *app_label(int index, char digits[APP_DIGITS]) {
  if (index >= 0 && index < app_means.labels_count && app_means.labels[index][0] != '\0') {
    return app_means.labels[index];
  }
  snprintf(digits, APP_DIGITS, "%d", index);
  return digits;
}

static double within(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

/* Factor and offset from the model's picture into the file's, along one axis. */
static void back(int part, int inner, int start, int shift, double *factor, double *offset) {
  *factor = (double)part / inner;
  *offset = start - shift * *factor;
}

static void in_picture(const float *pairs, int count, const app_placement *place, double *made) {
  double factor[2] = {1, 1}, offset[2] = {0, 0};
  if (place != NULL) {
    back(place->part_width, place->inner_width, place->left, place->across, &factor[0], &offset[0]);
    back(place->part_height, place->inner_height, place->top, place->down, &factor[1], &offset[1]);
  }
  for (int i = 0; i < count; ++i) {
    made[i] = pairs[i] * factor[i % 2] + offset[i % 2];
    if (place == NULL) continue;
    made[i] = i % 2 == 0 ? within(made[i], place->left, place->left + place->part_width)
                         : within(made[i], place->top, place->top + place->part_height);
  }
}

static app_found *add(app_meaning *meaning, int index, double score) {
  app_found *one = &meaning->found[meaning->count++];
  one->index = index, one->score = score;
  return one;
}

static void read_boxes(const void *const *outputs, const app_placement *place,
                       app_meaning *meaning) {
  const float *scores = outputs[app_means.scores], *boxes = outputs[app_means.boxes];
  const int32_t *classes = outputs[app_means.classes];
  for (int row = 0; row < app_means.count; ++row) {
    if (!(scores[row] > 0)) continue;
    app_found *one = add(meaning, classes[row], scores[row]);
    in_picture(boxes + row * 4, 4, place, one->box);
    if (meaning->points == 0) continue;
    double *points = meaning->all_points + (meaning->count - 1) * meaning->points;
    const float *marks = outputs[app_means.landmarks];
    in_picture(marks + row * meaning->points, meaning->points, place, points);
    one->points = points;
  }
}

static int by_share(const void *left, const void *right) {
  const app_found *a = left, *b = right;
  if (a->score != b->score) return a->score < b->score ? 1 : -1;
  return a->index - b->index;
}

static void read_mask(const void *const *outputs, app_meaning *meaning) {
  const uint8_t *mask = outputs[app_means.mask];
  const size_t pixels = (size_t)app_means.mask_height * (size_t)app_means.mask_width;
  size_t counts[256] = {0};
  for (size_t i = 0; i < pixels; ++i) counts[mask[i]]++;
  for (int index = 0; index < 256; ++index) {
    if (counts[index] != 0) add(meaning, index, (double)counts[index] / (double)pixels);
  }
  qsort(meaning->found, (size_t)meaning->count, sizeof *meaning->found, by_share);
}

static const char *read_text(const void *const *outputs, app_meaning *meaning) {
  const int32_t *classes = outputs[app_means.classes];
  char digits[APP_DIGITS];
  size_t length = 0, room = 1;
  int before = app_means.blank;
  for (int pass = 0; pass < 2; ++pass) { /* the first one measures */
    if (pass == 1 && (meaning->text = calloc(room, 1)) == NULL) return app_failure("out of memory");
    before = app_means.blank;
    for (int step = 0; step < app_means.count; ++step) {
      const int index = classes[step];
      if (index != app_means.blank && !(app_means.collapse && index == before)) {
        const int shift = app_means.blank >= 0 && app_means.blank < index;
        const char *name = app_label(index - shift, digits);
        if (pass == 0) room += strlen(name);
        if (pass == 1) length += (size_t)sprintf(meaning->text + length, "%s", name);
      }
      before = index;
    }
  }
  return NULL;
}

const char *app_read_meaning(const void *const *outputs, const app_placement *place,
                             app_meaning *meaning) {
  memset(meaning, 0, sizeof *meaning);
  if (app_means.task == APP_NOTHING) return NULL;
  if (app_means.task == APP_TEXT) return read_text(outputs, meaning);
  const size_t most = app_means.task == APP_MASK ? 256 : (size_t)app_means.count;
  meaning->boxed = app_means.task == APP_BOXES;
  meaning->points = app_means.landmarks < 0 ? 0 : app_means.points;
  meaning->found = calloc(most + 1, sizeof *meaning->found);
  meaning->all_points = calloc(most * (size_t)meaning->points + 1, sizeof(double));
  if (meaning->found == NULL || meaning->all_points == NULL) {
    app_free_meaning(meaning);
    return app_failure("out of memory");
  }
  if (meaning->boxed) read_boxes(outputs, place, meaning);
  if (app_means.task == APP_MASK) read_mask(outputs, meaning);
  if (app_means.task == APP_CLASSES) {
    const float *scores = outputs[app_means.scores];
    const int32_t *classes = outputs[app_means.classes];
    for (int i = 0; i < app_means.count; ++i) add(meaning, classes[i], scores[i]);
  }
  return NULL;
}

void app_free_meaning(app_meaning *meaning) {
  free(meaning->found);
  free(meaning->all_points);
  free(meaning->text);
  memset(meaning, 0, sizeof *meaning);
}

static int columns_of(const char *text) { /* letters of UTF-8 */
  int count = 0;
  for (; *text != '\0'; ++text) count += ((unsigned char)*text & 0xc0) != 0x80;
  return count;
}

void app_print_meaning(FILE *out, const app_meaning *meaning) {
  if (app_means.task == APP_NOTHING) return;
  if (meaning->text != NULL) {
    fprintf(out, "text: %s\n", meaning->text);
    return;
  }
  if (meaning->count == 0) {
    fputs("nothing was found\n", out);
    return;
  }
  char digits[APP_DIGITS];
  int wide = 4;
  for (int i = 0; i < meaning->count; ++i) {
    const int own = columns_of(app_label(meaning->found[i].index, digits));
    wide = own > wide ? own : wide;
  }
  fprintf(out, "%-*s  %8s", wide, "name", app_means.task == APP_MASK ? "share" : "score");
  if (meaning->boxed) fprintf(out, "  %8s  %8s  %8s  %8s", "left", "top", "right", "bottom");
  fputc('\n', out);
  for (int i = 0; i < meaning->count; ++i) {
    const app_found *one = &meaning->found[i];
    const char *name = app_label(one->index, digits);
    fprintf(out, "%s%*s  %8.3g", name, wide - columns_of(name), "", one->score);
    for (int k = 0; meaning->boxed && k < 4; ++k) fprintf(out, "  %8.1f", one->box[k]);
    fputc('\n', out);
  }
}

static void fill(app_picture *picture, double x1, double y1, double x2, double y2,
                 const uint8_t *colour) {
  const int right = (int)within(x2, 0, picture->width), bottom = (int)within(y2, 0, picture->height);
  for (int y = (int)within(y1, 0, picture->height); y < bottom; ++y) {
    for (int x = (int)within(x1, 0, picture->width); x < right; ++x) {
      memcpy(picture->pixels + ((size_t)y * (size_t)picture->width + (size_t)x) * 3, colour, 3);
    }
  }
}

static void draw_box(app_picture *picture, const double *box, double thick, const uint8_t *colour) {
  fill(picture, box[0], box[1], box[2], box[1] + thick, colour);
  fill(picture, box[0], box[3] - thick, box[2], box[3], colour);
  fill(picture, box[0], box[1], box[0] + thick, box[3], colour);
  fill(picture, box[2] - thick, box[1], box[2], box[3], colour);
}

/* The class of a mask at a pixel of the mask; that of the best box, if each has a mask. */
static int class_at(const void *const *outputs, int y, int x) {
  const size_t plane = (size_t)app_means.mask_height * (size_t)app_means.mask_width;
  const size_t pixel = (size_t)y * (size_t)app_means.mask_width + (size_t)x;
  if (app_means.mask >= 0) return ((const uint8_t *)outputs[app_means.mask])[pixel];
  const uint8_t *masks = outputs[app_means.masks];
  for (int row = 0; row < app_means.count; ++row) {
    if (!(((const float *)outputs[app_means.scores])[row] > 0)) continue;
    if (masks[(size_t)row * plane + pixel] == 0) continue;
    return ((const int32_t *)outputs[app_means.classes])[row] % COLOURS + COLOURS;
  }
  return 0;
}

static void draw_mask(const void *const *outputs, const app_placement *place, const app_rule *rule,
                      app_picture *picture) {
  app_rule seen_by = *rule; /* the mask is that of the model's input, at another size */
  seen_by.height = app_means.mask_height, seen_by.width = app_means.mask_width;
  const app_placement seen = app_place(&seen_by, place->target_height, place->target_width);
  double fy, oy, fx, ox, gy, py, gx, px;
  back(place->part_height, place->inner_height, place->top, place->down, &fy, &oy);
  back(place->part_width, place->inner_width, place->left, place->across, &fx, &ox);
  back(seen.part_height, seen.inner_height, seen.top, seen.down, &gy, &py);
  back(seen.part_width, seen.inner_width, seen.left, seen.across, &gx, &px);
  for (int y = 0; y < picture->height; ++y) {
    const int row = (int)floor(((y + 0.5 - oy) / fy - py) / gy);
    for (int x = 0; x < picture->width; ++x) {
      const int column = (int)floor(((x + 0.5 - ox) / fx - px) / gx);
      if (row < 0 || column < 0 || row >= seen_by.height || column >= seen_by.width) continue;
      const int found = class_at(outputs, row, column);
      uint8_t *pixel = picture->pixels + ((size_t)y * (size_t)picture->width + (size_t)x) * 3;
      for (int c = 0; found > 0 && c < 3; ++c) {
        pixel[c] = (uint8_t)((pixel[c] + colours[found % COLOURS][c]) / 2);
      }
    }
  }
}

void app_draw_meaning(const app_meaning *meaning, const void *const *outputs,
                      const app_placement *place, const app_rule *rule, app_picture *picture) {
  const int shorter = picture->width < picture->height ? picture->width : picture->height;
  const double thick = shorter / 200 > 1 ? shorter / 200 : 1;
  if (app_means.mask >= 0 || app_means.masks >= 0) draw_mask(outputs, place, rule, picture);
  for (int i = 0; meaning->boxed && i < meaning->count; ++i) {
    const app_found *one = &meaning->found[i];
    const uint8_t *colour = colours[abs(one->index % COLOURS)];
    draw_box(picture, one->box, thick, colour);
    for (int k = 0; k + 1 < meaning->points; k += 2) {
      const double x = one->points[k], y = one->points[k + 1];
      fill(picture, x - thick, y - thick, x + thick, y + thick, colour);
    }
  }
}
