/* What the outputs of the model mean: names, boxes, a mask or text. */
#ifndef APP_MEANING_H
#define APP_MEANING_H

#include <stdio.h>

#include "ends.h"
#include "picture.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int index;            /* the number of the class; app_label has its name */
  double score;         /* of a mask, the share of the pixels */
  double box[4];        /* x1, y1, x2, y2 in pixels of the picture, if there are boxes */
  const double *points; /* pairs of x and y */
} app_found;

typedef struct {
  app_found *found; /* the best first */
  int count;
  int boxed, points;
  char *text;
  double *all_points;
} app_meaning;

#define APP_DIGITS 12
/* The name of a class, or its number, which is written into `digits`. */
const char *app_label(int index, char digits[APP_DIGITS]);

/* Reads the outputs, in the order of the model. `place` is that of the picture, as app_prepare tells
   it; NULL leaves boxes in pixels of the model's input. Returns NULL, or what is wrong. */
const char *app_read_meaning(const void *const *outputs, const app_placement *place,
                             app_meaning *meaning);
void app_free_meaning(app_meaning *meaning);

/* Prints it as a table, as `edgekit run` does. */
void app_print_meaning(FILE *out, const app_meaning *meaning);

/* Draws boxes, points and masks into a picture of three channels, which `place` is of. */
void app_draw_meaning(const app_meaning *meaning, const void *const *outputs,
                      const app_placement *place, const app_rule *rule, app_picture *picture);

#ifdef __cplusplus
}
#endif
#endif
