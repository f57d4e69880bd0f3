/* Pictures: from a file or a camera's frame to an input of the model. */
#ifndef APP_PICTURE_H
#define APP_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "ends.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pixels of 0 to 255, row by row: red, green and blue, or one grey channel. */
typedef struct {
  int height, width, channels;
  uint8_t *pixels; /* of malloc */
} app_picture;

/* A part of a picture, resized, at a place in another picture. */
typedef struct {
  int top, left, part_height, part_width;
  int inner_height, inner_width;
  int down, across;
  int target_height, target_width;
} app_placement;

/* Functions that may fail return NULL, or one sentence that holds until the thread's next call. */

/* Decodes PNG and JPEG where the program was built with libpng and libjpeg, and always PPM, PGM and
   BMP. Obeys the orientation in EXIF data. */
const char *app_read_picture(const char *path, app_picture *picture);
const char *app_decode_picture(const uint8_t *bytes, size_t length, app_picture *picture);

/* Whether a file's name ends like that of a picture. */
int app_is_picture_name(const char *path);

/* Bare frames: "yuyv", "nv12", "rgb24", "bgr24" or "grey", as V4L2 names them, in the given size. */
typedef struct {
  char format[8];
  int height, width;
} app_frame;

const char *app_parse_frame(const char *text, app_frame *frame); /* "yuyv:640x480" */
const char *app_read_frame(const char *path, const app_frame *frame, app_picture *picture);

/* Whether a file is a V4L2 camera, and one frame of it; `frame` may be NULL: then the camera is asked
   for frames as large as `rule` says. */
int app_is_camera(const char *path);
const char *app_read_camera(const char *path, const app_frame *frame, const app_rule *rule,
                            app_picture *picture);

/* Writes .png where the program has libpng, and .ppm. */
const char *app_write_picture(const char *path, const app_picture *picture);

app_placement app_place(const app_rule *rule, int height, int width);

/* Fills the input's memory, which has the size that the model says, and tells where the picture is. */
const char *app_prepare(const app_picture *picture, const app_rule *rule, void *input,
                        app_placement *place);

/* Gives a grey picture three channels. */
const char *app_in_colour(app_picture *picture);

void app_free_picture(app_picture *picture);

/* Keeps a sentence and returns it; for files of this program. */
const char *app_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the bytes of a file, which the caller frees, or NULL and the reason. */
uint8_t *app_bytes_of(const char *path, size_t *length, const char **failure);
const char *app_new_picture(int height, int width, int channels, app_picture *picture);

#ifdef __cplusplus
}
#endif
#endif
