/* What stands before and behind the model, as [preprocess] and [postprocess] in edgekit.toml declared
   it. edgekit wrote ends.c out of the bundle's manifest. */
#ifndef APP_ENDS_H
#define APP_ENDS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum app_resize { APP_STRETCH, APP_CROP, APP_PAD };

/* How a picture becomes an input of the model. */
typedef struct {
  int height, width; /* of the picture that an image is brought to; 0 if the input takes none */
  int channels;      /* 3, red first, or 1 */
  enum app_resize resize;
  int centred, fill; /* where a padded picture lies, and the pixels around it */
  int on_board;      /* whether the model takes the pixels themselves; otherwise: */
  int reversed;      /* blue first */
  int planes;        /* channels before rows */
  double scale, mean[3], std[3]; /* value = (pixel * scale - mean) / std */
  const char *dtype;             /* of the input, as numpy names it */
  double step, zero;             /* of a quantised input: stored = value / step + zero; or 1 and 0 */
} app_rule;

enum app_task { APP_NOTHING, APP_CLASSES, APP_BOXES, APP_MASK, APP_TEXT };

/* What the outputs of the model mean. Outputs are numbered; -1 is none. */
typedef struct {
  enum app_task task;
  const char *const *labels;
  int labels_count;
  int scores, classes, boxes, landmarks, mask, masks;
  int count;             /* classes, boxes or steps */
  int points;            /* numbers of landmarks of each box */
  int mask_height, mask_width;
  int blank, collapse; /* of text */
} app_meanings;

extern const app_rule app_rules[]; /* for each input */
extern const int app_rules_count;
extern const app_meanings app_means;

#ifdef __cplusplus
}
#endif
#endif
