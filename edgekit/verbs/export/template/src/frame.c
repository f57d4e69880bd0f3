/* Bare frames of cameras, from files and from V4L2. */
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "picture.h"

#define FRAME_SECONDS 10

static const struct {
  const char *name;
  uint32_t v4l2;
  int halves; /* bytes of two pixels */
  int channels;
} formats[] = {{"yuyv", V4L2_PIX_FMT_YUYV, 4, 3},
               {"nv12", V4L2_PIX_FMT_NV12, 3, 3},
               {"rgb24", V4L2_PIX_FMT_RGB24, 6, 3},
               {"bgr24", V4L2_PIX_FMT_BGR24, 6, 3},
               {"grey", V4L2_PIX_FMT_GREY, 2, 1}};

enum { YUYV, NV12, RGB24, BGR24, GREY, FORMATS };

static int format_of(const char *name) {
  int kind = 0;
  while (kind < FORMATS && strcmp(formats[kind].name, name) != 0) ++kind;
  return kind;
}

const char *app_parse_frame(const char *text, app_frame *frame) {
  char after;
  if (sscanf(text, "%7[a-z0-9]:%dx%d%c", frame->format, &frame->width, &frame->height, &after) != 3 ||
      format_of(frame->format) == FORMATS || frame->width < 2 || frame->height < 2 ||
      frame->width % 2 != 0 || frame->height % 2 != 0) {
    return app_failure("a frame is yuyv, nv12, rgb24, bgr24 or grey, and an even width and height, "
                       "such as yuyv:640x480; not %s", text);
  }
  return NULL;
}

static uint8_t byte(double value) {
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : nearbyint(value));
}

/* ITU-R 601: luma of 16 to 235, colours of 16 to 240. */
static void write_rgb(int y, int u, int v, uint8_t *rgb) {
  const double luma = (y - 16) * (255.0 / 219), cb = (u - 128) * (255.0 / 224);
  const double cr = (v - 128) * (255.0 / 224);
  rgb[0] = byte(luma + 1.402 * cr);
  rgb[1] = byte(luma - (0.114 * 1.772 * cb + 0.299 * 1.402 * cr) / 0.587);
  rgb[2] = byte(luma + 1.772 * cb);
}

/* `stride` is the bytes of a row; 0 where rows follow each other. */
static const char *unpacked(const uint8_t *bytes, size_t length, const app_frame *frame,
                            size_t stride, app_picture *picture) {
  const int kind = format_of(frame->format);
  const size_t height = (size_t)frame->height, width = (size_t)frame->width;
  const size_t halves = (size_t)formats[kind].halves;
  const size_t row = kind == NV12 ? width : width / 2 * halves;
  if (stride == 0) stride = row;
  const size_t needed = kind == NV12 ? stride * height * 3 / 2 : stride * height;
  if (length < needed) {
    return app_failure("it has %zu bytes, and a frame of %s:%zux%zu has %zu", length, frame->format,
                       width, height, needed);
  }
  const char *failure =
      app_new_picture(frame->height, frame->width, formats[kind].channels, picture);
  if (failure != NULL) return failure;
  for (size_t y = 0; y < height; ++y) {
    const uint8_t *line = bytes + y * stride;
    uint8_t *to = picture->pixels + y * width * (size_t)picture->channels;
    if (kind == RGB24 || kind == GREY) {
      memcpy(to, line, row);
      continue;
    }
    const uint8_t *colours = bytes + (height + y / 2) * stride;
    for (size_t x = 0; x < width; ++x, to += 3) {
      const size_t pair = x / 2;
      if (kind == BGR24) {
        for (int c = 0; c < 3; ++c) to[c] = line[x * 3 + 2 - (size_t)c];
      } else if (kind == YUYV) {
        write_rgb(line[x * 2], line[pair * 4 + 1], line[pair * 4 + 3], to);
      } else {
        write_rgb(line[x], colours[pair * 2], colours[pair * 2 + 1], to);
      }
    }
  }
  return NULL;
}

const char *app_read_frame(const char *path, const app_frame *frame, app_picture *picture) {
  size_t length;
  const char *failure;
  uint8_t *bytes = app_bytes_of(path, &length, &failure);
  picture->pixels = NULL;
  if (bytes != NULL) failure = unpacked(bytes, length, frame, 0, picture);
  free(bytes);
  return failure;
}

static int asked(int camera, unsigned long what, void *with) {
  int ended;
  do ended = ioctl(camera, what, with);
  while (ended < 0 && errno == EINTR);
  return ended;
}

int app_is_camera(const char *path) {
  struct v4l2_capability capability;
  const int camera = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (camera < 0) return 0;
  memset(&capability, 0, sizeof capability);
  const int is = asked(camera, VIDIOC_QUERYCAP, &capability) == 0;
  close(camera);
  return is;
}

/* Chooses the wanted format, or the first that the camera has. The camera may change the size. */
static const char *settled(int camera, app_frame *frame, size_t *stride) {
  const int wanted = frame->format[0] == '\0' ? FORMATS : format_of(frame->format);
  for (int kind = 0; kind < FORMATS; ++kind) {
    if (wanted != FORMATS && kind != wanted) continue;
    struct v4l2_format format;
    memset(&format, 0, sizeof format);
    format.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    format.fmt.pix.width = (uint32_t)frame->width;
    format.fmt.pix.height = (uint32_t)frame->height;
    format.fmt.pix.pixelformat = formats[kind].v4l2;
    format.fmt.pix.field = V4L2_FIELD_NONE;
    if (asked(camera, VIDIOC_S_FMT, &format) < 0 ||
        format.fmt.pix.pixelformat != formats[kind].v4l2) {
      continue;
    }
    snprintf(frame->format, sizeof frame->format, "%s", formats[kind].name);
    frame->width = (int)format.fmt.pix.width & ~1;
    frame->height = (int)format.fmt.pix.height & ~1;
    *stride = format.fmt.pix.bytesperline;
    return NULL;
  }
  return app_failure("it gives no frames in yuyv, nv12, rgb24, bgr24 or grey, or not in the format "
                     "that --frame names");
}

static const char *one_frame(int camera, const app_frame *frame, size_t stride,
                             app_picture *picture) {
  struct v4l2_requestbuffers buffers;
  struct v4l2_buffer buffer;
  int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
  memset(&buffers, 0, sizeof buffers);
  buffers.count = 1, buffers.type = V4L2_BUF_TYPE_VIDEO_CAPTURE, buffers.memory = V4L2_MEMORY_MMAP;
  memset(&buffer, 0, sizeof buffer);
  buffer.type = V4L2_BUF_TYPE_VIDEO_CAPTURE, buffer.memory = V4L2_MEMORY_MMAP;
  if (asked(camera, VIDIOC_REQBUFS, &buffers) < 0 || buffers.count < 1 ||
      asked(camera, VIDIOC_QUERYBUF, &buffer) < 0) {
    return app_failure("it has no buffers for frames: %s", strerror(errno));
  }
  const size_t length = buffer.length;
  void *memory = mmap(NULL, length, PROT_READ, MAP_SHARED, camera, (off_t)buffer.m.offset);
  if (memory == MAP_FAILED) return app_failure("its buffer can't be mapped: %s", strerror(errno));
  const char *failure = NULL;
  if (asked(camera, VIDIOC_QBUF, &buffer) < 0 || asked(camera, VIDIOC_STREAMON, &type) < 0) {
    failure = app_failure("it doesn't start: %s", strerror(errno));
  } else {
    struct pollfd ready = {camera, POLLIN, 0};
    if (poll(&ready, 1, FRAME_SECONDS * 1000) <= 0) {
      failure = app_failure("it gave no frame in %d seconds", FRAME_SECONDS);
    } else if (asked(camera, VIDIOC_DQBUF, &buffer) < 0) {
      failure = app_failure("it gave no frame: %s", strerror(errno));
    } else {
      failure = unpacked(memory, length, frame, stride, picture);
    }
    asked(camera, VIDIOC_STREAMOFF, &type);
  }
  munmap(memory, length);
  return failure;
}

const char *app_read_camera(const char *path, const app_frame *frame, const app_rule *rule,
                            app_picture *picture) {
  app_frame got = {"", rule->height, rule->width};
  size_t stride = 0;
  if (frame != NULL) got = *frame;
  picture->pixels = NULL;
  const int camera = open(path, O_RDWR | O_CLOEXEC);
  if (camera < 0) return app_failure("%s", strerror(errno));
  const char *failure = settled(camera, &got, &stride);
  if (failure == NULL) failure = one_frame(camera, &got, stride, picture);
  close(camera);
  return failure;
}
