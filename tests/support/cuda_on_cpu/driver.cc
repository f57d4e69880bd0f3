// NVIDIA's driver interface on a CPU: a "module" is the path of a library that g++ made of the kernels'
// source, with cuda.h of this folder. One thread runs the threads of a group in turns, each on a stack of
// its own, until each has come to the next __syncthreads.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include <vector>

extern "C" {
struct edgekit_three { unsigned x, y, z; };
edgekit_three threadIdx, blockIdx;

namespace {
const size_t kStack = 64 << 10;
const unsigned kArguments = 32;
typedef void Kernel(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                    void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                    void*, void*, void*, void*, void*, void*, void*, void*);
ucontext_t home;
std::vector<ucontext_t> threads;
std::vector<char> stacks;
std::vector<char> over;
size_t current;
Kernel* kernel;
void* given[kArguments];
int fault;  // CUDA's error that every launch gives

void begin() {
  void** a = given;
  kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
         a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], a[28],
         a[29], a[30], a[31]);
  over[current] = 1;
  swapcontext(&threads[current], &home);
}
}  // namespace

void edgekit_wait() { swapcontext(&threads[current], &home); }

int cuInit(unsigned) {
  const char* said = getenv("EDGEKIT_TEST_CUDA_FAULT");
  fault = said == nullptr ? 0 : atoi(said);
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDriverGetVersion(int* version) { return *version = fault == 222 ? 12040 : 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = fault == 100 ? 0 : 1, 0; }
int cuDeviceGet(int* device, int) { return *device = 0, 0; }
int cuDeviceGetName(char* name, int size, int) { return strncpy(name, "a CPU", size), 0; }
int cuDeviceGetAttribute(int* value, int what, int) { return *value = what == 75 ? 7 : what == 76 ? 5 : 1024, 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t(1) << 32, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &home, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  if (fault == 222 || fault == 209) return fault;
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  return *module == nullptr ? 200 : 0;
}
int cuModuleUnload(void* module) { return dlclose(module), 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, name);
  return *function == nullptr ? 500 : 0;
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 1024, 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (fault == 2) return 2;
  void* found = aligned_alloc(512, (bytes + 511) / 512 * 512);
  memset(found, 0x7f, bytes);
  *address = reinterpret_cast<uint64_t>(found);
  return 0;
}
int cuMemFree_v2(uint64_t address) { return free(reinterpret_cast<void*>(address)), 0; }
int cuMemAllocHost_v2(void** address, size_t bytes) { return *address = aligned_alloc(512, (bytes + 511) / 512 * 512), 0; }
int cuMemFreeHost(void* address) { return free(address), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return memcpy(reinterpret_cast<void*>(to), from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return memcpy(to, reinterpret_cast<void*>(from), bytes), 0; }

int cuEventCreate(void** event, unsigned) { return *event = new timespec(), 0; }
int cuEventRecord(void* event, void*) { return clock_gettime(CLOCK_MONOTONIC, static_cast<timespec*>(event)), 0; }
int cuEventElapsedTime(float* taken, void* from, void* to) {
  const timespec *a = static_cast<timespec*>(from), *b = static_cast<timespec*>(to);
  *taken = (b->tv_sec - a->tv_sec) * 1e3f + (b->tv_nsec - a->tv_nsec) / 1e6f;
  return 0;
}
int cuEventDestroy_v2(void* event) { return delete static_cast<timespec*>(event), 0; }

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty,
                   unsigned tz, unsigned, void*, void** arguments, void**) {
  if (fault == 719) return fault;
  const size_t count = size_t(tx) * ty * tz;
  kernel = reinterpret_cast<Kernel*>(function);
  unsigned used = 0;
  for (; used < kArguments && arguments[used] != nullptr; ++used) given[used] = *static_cast<void**>(arguments[used]);
  threads.resize(count);
  stacks.resize(count * kStack);
  for (unsigned z = 0; z < gz; ++z) for (unsigned y = 0; y < gy; ++y) for (unsigned x = 0; x < gx; ++x) {
    blockIdx = {x, y, z};
    over.assign(count, 0);
    for (size_t k = 0; k < count; ++k) {
      getcontext(&threads[k]);
      threads[k].uc_stack.ss_sp = &stacks[k * kStack];
      threads[k].uc_stack.ss_size = kStack;
      threads[k].uc_link = nullptr;
      makecontext(&threads[k], begin, 0);
    }
    for (size_t left = count; left > 0;) {
      for (current = 0; current < count; ++current) {
        if (over[current]) continue;
        threadIdx = {unsigned(current % tx), unsigned(current / tx % ty), unsigned(current / tx / ty)};
        swapcontext(&home, &threads[current]);
        if (over[current]) --left;
      }
    }
  }
  return 0;
}
}
