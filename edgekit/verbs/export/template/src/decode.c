/* Reads pictures. What the files say is checked before it is followed. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "picture.h"

#ifdef APP_HAS_PNG
#include <png.h>
#endif
#ifdef APP_HAS_JPEG
#include <jpeglib.h>
#include <jerror.h>
#endif

#define MOST_BYTES ((size_t)1 << 30)

typedef struct {
  const uint8_t *bytes;
  size_t length, at;
} source;

static uint32_t number(const uint8_t *bytes, int count, int big) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value |= (uint32_t)bytes[i] << 8 * (big ? count - 1 - i : i);
  return value;
}

#if defined(APP_HAS_PNG) || defined(APP_HAS_JPEG)
/* The orientation in EXIF data, 1 to 8. */
static int orientation(const uint8_t *bytes, size_t length) {
  if (length < 8) return 1;
  const int big = bytes[0] == 'M';
  const size_t table = number(bytes + 4, 4, big);
  if (table > length - 2 || table + 2 > length) return 1;
  const size_t entries = number(bytes + table, 2, big);
  for (size_t i = 0; i < entries && table + 2 + (i + 1) * 12 <= length; ++i) {
    const uint8_t *entry = bytes + table + 2 + i * 12;
    const int value = (int)number(entry + 8, 2, big);
    if (number(entry, 2, big) == 0x112) return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

static const char *turned(app_picture *picture, int how) {
  if (how == 1) return NULL;
  const int height = picture->height, width = picture->width, across = how >= 5;
  app_picture made;
  const char *failure =
      app_new_picture(across ? width : height, across ? height : width, picture->channels, &made);
  if (failure != NULL) return failure;
  const size_t channels = (size_t)picture->channels;
  for (int y = 0; y < made.height; ++y) {
    for (int x = 0; x < made.width; ++x) {
      int from_y = across ? x : y, from_x = across ? y : x;
      if (how == 3 || how == 4 || how == 6 || how == 7) from_y = height - 1 - from_y;
      if (how == 2 || how == 3 || how == 7 || how == 8) from_x = width - 1 - from_x;
      memcpy(made.pixels + ((size_t)y * (size_t)made.width + (size_t)x) * channels,
             picture->pixels + ((size_t)from_y * (size_t)width + (size_t)from_x) * channels,
             channels);
    }
  }
  app_free_picture(picture);
  *picture = made;
  return NULL;
}
#endif

#ifdef APP_HAS_PNG
static void give_png(png_structp png, png_bytep to, size_t length) {
  source *from = png_get_io_ptr(png);
  if (length > from->length - from->at) png_error(png, "it is cut off");
  memcpy(to, from->bytes + from->at, length);
  from->at += length;
}

static void stop_png(png_structp png, png_const_charp why) {
  (void)why;
  longjmp(png_jmpbuf(png), 1);
}

static void ignore_png_warning(png_structp png, png_const_charp why) { (void)png, (void)why; }

static const char *decode_png(source *from, app_picture *picture) {
  png_structp png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, stop_png, ignore_png_warning);
  png_infop info = png == NULL ? NULL : png_create_info_struct(png);
  const char *volatile failure = info == NULL ? app_failure("there is no memory for it") : NULL;
  png_bytep *volatile rows = NULL;
  if (failure == NULL && setjmp(png_jmpbuf(png)) != 0) {
    failure = app_failure("it is cut off or damaged, or no PNG that libpng reads");
  } else if (failure == NULL) {
    png_set_read_fn(png, from, give_png);
    png_set_user_limits(png, 1000000, 1000000);
    png_read_info(png, info);
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const int height = (int)png_get_image_height(png, info);
    failure = app_new_picture(height, (int)png_get_image_width(png, info),
                              (int)png_get_channels(png, info), picture);
    rows = failure == NULL ? malloc((size_t)height * sizeof *rows) : NULL;
    if (failure == NULL && rows == NULL) failure = app_failure("there is no memory for it");
    if (failure == NULL) {
      for (int y = 0; y < height; ++y) {
        rows[y] = picture->pixels + (size_t)y * png_get_rowbytes(png, info);
      }
      png_read_image(png, rows);
      png_read_end(png, info);
#ifdef PNG_eXIf_SUPPORTED
      png_uint_32 length = 0;
      png_bytep exif = NULL;
      if (png_get_eXIf_1(png, info, &length, &exif) != 0) {
        failure = turned(picture, orientation(exif, length));
      }
#endif
    }
  }
  free((void *)rows);
  if (png != NULL) png_destroy_read_struct(&png, &info, NULL);
  return failure;
}
#endif

#ifdef APP_HAS_JPEG
typedef struct {
  struct jpeg_error_mgr base;
  jmp_buf escape;
} jpeg_failing;

static void stop_jpeg(j_common_ptr jpeg) {
  longjmp(((jpeg_failing *)jpeg->err)->escape, 1);
}

static void hear_jpeg(j_common_ptr jpeg, int level) {
  /* libjpeg goes on with grey where a file is cut off. */
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) stop_jpeg(jpeg);
}

static int jpeg_orientation(const struct jpeg_decompress_struct *jpeg) {
  for (jpeg_saved_marker_ptr m = jpeg->marker_list; m != NULL; m = m->next) {
    if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
      return orientation(m->data + 6, m->data_length - 6);
    }
  }
  return 1;
}

static const char *decode_jpeg(source *from, app_picture *picture) {
  struct jpeg_decompress_struct jpeg;
  jpeg_failing failing;
  const char *volatile failure = NULL;
  memset(&jpeg, 0, sizeof jpeg);
  jpeg.err = jpeg_std_error(&failing.base);
  failing.base.error_exit = stop_jpeg;
  failing.base.emit_message = hear_jpeg;
  if (setjmp(failing.escape) != 0) {
    failure = app_failure("it is cut off or damaged, or no JPEG that libjpeg reads");
  } else {
    jpeg_create_decompress(&jpeg);
    jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_mem_src(&jpeg, (unsigned char *)from->bytes, (unsigned long)from->length);
    jpeg_read_header(&jpeg, TRUE);
    if (jpeg.num_components == 4) {
      failure = app_failure("it is a JPEG for printing (CMYK); save it as RGB");
    } else {
      jpeg.out_color_space = jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
      failure = app_new_picture((int)jpeg.image_height, (int)jpeg.image_width,
                                jpeg.num_components == 1 ? 1 : 3, picture);
    }
    if (failure == NULL) {
      jpeg_start_decompress(&jpeg);
      while (jpeg.output_scanline < jpeg.output_height) {
        const size_t row = (size_t)picture->width * (size_t)picture->channels;
        JSAMPROW line = picture->pixels + jpeg.output_scanline * row;
        jpeg_read_scanlines(&jpeg, &line, 1);
      }
      const int how = jpeg_orientation(&jpeg);
      jpeg_finish_decompress(&jpeg);
      failure = turned(picture, how);
    }
  }
  jpeg_destroy_decompress(&jpeg);
  return failure;
}
#endif

/* A number in the head of a PPM or PGM, or -1. */
static int pnm_number(source *from) {
  int value = -1;
  while (from->at < from->length) {
    const uint8_t c = from->bytes[from->at];
    if (c == '#') {
      while (from->at < from->length && from->bytes[from->at] != '\n') from->at++;
    } else if (c >= '0' && c <= '9' && value < 1000000) {
      value = (value < 0 ? 0 : value * 10) + (c - '0');
      from->at++;
    } else if (value >= 0) {
      return value;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      from->at++;
    } else {
      return -1;
    }
  }
  return -1;
}

static const char *decode_pnm(source *from, app_picture *picture) {
  const int channels = from->bytes[1] == '6' ? 3 : 1;
  from->at = 2;
  const int width = pnm_number(from), height = pnm_number(from), most = pnm_number(from);
  if (width < 0 || height < 0 || most != 255) {
    return app_failure("it is no PPM or PGM with 8 bits a channel");
  }
  from->at++;
  const char *failure = app_new_picture(height, width, channels, picture);
  if (failure != NULL) return failure;
  const size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
  if (from->at > from->length || from->length - from->at < bytes) {
    return app_failure("it is cut off");
  }
  memcpy(picture->pixels, from->bytes + from->at, bytes);
  return NULL;
}

static const char *decode_bmp(const source *from, app_picture *picture) {
  if (from->length < 54) return app_failure("it is cut off");
  const uint8_t *head = from->bytes;
  const uint32_t start = number(head + 10, 4, 0), size = number(head + 14, 4, 0);
  const int32_t width = (int32_t)number(head + 18, 4, 0);
  const int32_t tall = (int32_t)number(head + 22, 4, 0);
  const int bits = (int)number(head + 28, 2, 0);
  const uint32_t packing = number(head + 30, 4, 0);
  uint32_t colours = number(head + 46, 4, 0);
  if (size < 40 || packing != 0 || (bits != 8 && bits != 24 && bits != 32) || tall == INT32_MIN) {
    return app_failure("it is no BMP of 8, 24 or 32 bits without compression");
  }
  if (colours == 0 || colours > 256) colours = 256;
  const size_t palette = (size_t)14 + size;
  if (bits == 8 && (palette > from->length || from->length - palette < (size_t)colours * 4)) {
    return app_failure("it is cut off");
  }
  const char *failure = app_new_picture(tall < 0 ? -tall : tall, width, 3, picture);
  if (failure != NULL) return failure;
  const size_t row = ((size_t)width * (size_t)bits + 31) / 32 * 4;
  if (start > from->length || (from->length - start) / row < (size_t)picture->height) {
    return app_failure("it is cut off");
  }
  for (int y = 0; y < picture->height; ++y) {
    const uint8_t *line = head + start + (size_t)(tall < 0 ? y : picture->height - 1 - y) * row;
    uint8_t *to = picture->pixels + (size_t)y * (size_t)width * 3;
    for (int x = 0; x < width; ++x, to += 3) {
      const uint8_t *pixel = line + (size_t)x * (size_t)bits / 8;
      if (bits == 8) {
        if (*pixel >= colours) return app_failure("it names a colour that it does not have");
        pixel = head + palette + (size_t)*pixel * 4;
      }
      to[0] = pixel[2], to[1] = pixel[1], to[2] = pixel[0];
    }
  }
  return NULL;
}

const char *app_decode_picture(const uint8_t *bytes, size_t length, app_picture *picture) {
  source from = {bytes, length, 0};
  const char *failure;
  picture->pixels = NULL;
  if (length >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) {
#ifdef APP_HAS_PNG
    failure = decode_png(&from, picture);
#else
    failure = app_failure("this program was built without libpng: install libpng-dev and build "
                          "it again, or save the picture as .ppm");
#endif
  } else if (length >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) {
#ifdef APP_HAS_JPEG
    failure = decode_jpeg(&from, picture);
#else
    failure = app_failure("this program was built without libjpeg: install libjpeg-dev and build "
                          "it again, or save the picture as .ppm");
#endif
  } else if (length >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6')) {
    failure = decode_pnm(&from, picture);
  } else if (length >= 2 && bytes[0] == 'B' && bytes[1] == 'M') {
    failure = decode_bmp(&from, picture);
  } else {
    failure = app_failure("it is no PNG, JPEG, PPM, PGM or BMP");
  }
  if (failure != NULL) app_free_picture(picture);
  return failure;
}

uint8_t *app_bytes_of(const char *path, size_t *length, const char **failure) {
  FILE *file = fopen(path, "rb");
  size_t room = 1 << 16;
  uint8_t *bytes = file == NULL ? NULL : malloc(room);
  *length = 0;
  *failure = file == NULL ? app_failure("%s", strerror(errno)) : NULL;
  while (bytes != NULL) {
    const size_t count = fread(bytes + *length, 1, room - *length, file);
    *length += count;
    if (count == 0) break;
    if (*length < room) continue;
    room *= 2;
    uint8_t *larger = room > MOST_BYTES ? NULL : realloc(bytes, room);
    if (larger == NULL) free(bytes);
    bytes = larger;
  }
  if (file != NULL && bytes == NULL) *failure = app_failure("there is no memory for it");
  if (bytes != NULL && ferror(file)) *failure = app_failure("%s", strerror(errno));
  if (file != NULL) fclose(file);
  if (*failure == NULL) return bytes;
  free(bytes);
  return NULL;
}

const char *app_read_picture(const char *path, app_picture *picture) {
  size_t length;
  const char *failure;
  uint8_t *bytes = app_bytes_of(path, &length, &failure);
  picture->pixels = NULL;
  if (bytes != NULL) failure = app_decode_picture(bytes, length, picture);
  free(bytes);
  return failure;
}

int app_is_picture_name(const char *path) {
  static const char *const suffixes[] = {".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp"};
  const char *dot = strrchr(path, '.');
  for (size_t i = 0; dot != NULL && i < sizeof suffixes / sizeof *suffixes; ++i) {
    if (strcasecmp(dot, suffixes[i]) == 0) return 1;
  }
  return 0;
}

const char *app_write_picture(const char *path, const app_picture *picture) {
  const char *dot = strrchr(path, '.');
  if (dot != NULL && strcasecmp(dot, ".png") == 0) {
#ifdef APP_HAS_PNG
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)picture->width, image.height = (png_uint_32)picture->height;
    image.format = picture->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    if (png_image_write_to_file(&image, path, 0, picture->pixels, 0, NULL)) return NULL;
    return app_failure("%s", image.message);
#else
    return app_failure("this program was built without libpng: name a .ppm");
#endif
  }
  FILE *file = fopen(path, "wb");
  if (file == NULL) return app_failure("%s", strerror(errno));
  const size_t bytes =
      (size_t)picture->height * (size_t)picture->width * (size_t)picture->channels;
  fprintf(file, "P%c\n%d %d\n255\n", picture->channels == 3 ? '6' : '5', picture->width,
          picture->height);
  const int whole = fwrite(picture->pixels, 1, bytes, file) == bytes;
  return fclose(file) == 0 && whole ? NULL : app_failure("it can't be written whole");
}
