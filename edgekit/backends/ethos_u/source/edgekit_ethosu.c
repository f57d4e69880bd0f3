/* Starts a region through Arm's driver, or through the twin in a program without the driver. */
#include "edgekit_ethosu.h"

#include <stddef.h>

#if !defined(EDGEKIT_ETHOSU_DRIVER) && defined(__has_include)
#if __has_include(<ethosu_driver.h>)
#define EDGEKIT_ETHOSU_DRIVER 1
#endif
#endif

#if defined(EDGEKIT_ETHOSU_DRIVER) && EDGEKIT_ETHOSU_DRIVER

#include <ethosu_driver.h>

int edgekit_ethosu_run(const edgekit_ethosu_region *region, void *scratch) {
  uint64_t base[EDGEKIT_ETHOSU_REGIONS] = {0};
  size_t size[EDGEKIT_ETHOSU_REGIONS] = {0};
  unsigned char *const memory = (unsigned char *)scratch;
  const int count = 1 + (region->fast_region > region->scratch_region ? region->fast_region
                                                                      : region->scratch_region);
  base[region->fast_region] = (uint64_t)(uintptr_t)(memory + region->scratch_bytes);
  size[region->fast_region] = region->fast_bytes;
  base[region->scratch_region] = (uint64_t)(uintptr_t)memory;
  size[region->scratch_region] = region->scratch_bytes;
  base[region->constants_region] = (uint64_t)(uintptr_t)region->constants;
  size[region->constants_region] = region->constants_bytes;
  struct ethosu_driver *const driver = ethosu_reserve_driver();
  if (driver == NULL) {
    return -1;
  }
  const int status = ethosu_invoke_v3(driver, region->commands, (int)region->commands_bytes, base,
                                      size, count, NULL);
  ethosu_release_driver(driver);
  return status;
}

#else /* a program without the twin does not link */

int edgekit_ethosu_run(const edgekit_ethosu_region *region, void *scratch) {
  return edgekit_ethosu_interpret(region, scratch);
}

#endif
