/* An exported application's reader of pictures, without the libraries for PNG and JPEG. */
#include "picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  app_picture picture;
  if (app_decode_picture(data, size, &picture) == NULL) app_free_picture(&picture);
  return 0;
}
