/* A program's GPU through NVIDIA's driver: the device's primary context and its default stream, which
   libraries such as TensorRT use as well, and every object made at the start, so that a run only starts
   kernels. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "edgekit.h"
#include "gpu.h"
#include "model.h"

#define DECLARED(result, name, parameters) result(*name) parameters;
static struct {
  CUDA_FUNCTIONS(DECLARED)
} cu;

struct edgekit_gpu {
  cu_device device;
  cu_context context;
  cu_module module;
  cu_address arena, weights;
  cu_function *kernel; /* of each launch */
  cu_address *span;
  void ***argument; /* of each launch: where each of its spans is */
  unsigned char *host;
  void *own; /* the host's memory, pinned, if it is not the caller's */
  cu_event first, last; /* around the kernels of a run, where they are timed */
  int is_timed, has_run;
  long long nanoseconds;
  char name[128];
  char *why;
  size_t why_size;
};

__attribute__((format(printf, 2, 3))) static int failed(edgekit_gpu *gpu, const char *text, ...) {
  va_list values;
  va_start(values, text);
  vsnprintf(gpu->why, gpu->why_size, text, values);
  va_end(values);
  return EDGEKIT_DEVICE_FAILED;
}

/* Says what an error of CUDA means for the caller, who was `doing` something. */
static int explained(edgekit_gpu *gpu, cu_result code, const char *doing) {
  const char *word = NULL;
  if (cu.cuGetErrorName(code, &word) != CUDA_SUCCESS || word == NULL) word = "an unknown error";
  if (code == CUDA_OUT_OF_MEMORY)
    return failed(gpu, "the device %s has no room to %s: the model takes %zu bytes of it (%s)", gpu->name,
                  doing, edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes, word);
  return failed(gpu, "the device %s failed to %s (%s, CUDA's error %d): load the model again, and look "
                "into the kernel's log", gpu->name, doing, word, code);
}

/* Loads the driver once for the process. */
static int loaded(edgekit_gpu *gpu) {
  const char *chosen = getenv("EDGEKIT_CUDA_LIBRARY");
  void *library = NULL;
  if (cu.cuLaunchKernel != NULL) return EDGEKIT_OK;
  /* A relative path would mean a file of whatever folder the caller is in. */
  if (chosen == NULL) chosen = "libcuda.so.1";
  if (*chosen == '/' || strchr(chosen, '/') == NULL) library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return failed(gpu, "this machine has no driver of NVIDIA's: %s does not load; install the GPU's driver, "
                  "or name its library in EDGEKIT_CUDA_LIBRARY", chosen);
#define FOUND(result, name, parameters)                                                      \
  *(void **)&cu.name = dlsym(library, #name);                                                \
  if (cu.name == NULL) {                                                                     \
    memset(&cu, 0, sizeof cu);                                                               \
    return failed(gpu, "NVIDIA's driver of this machine is too old: it lacks " #name);       \
  }
  CUDA_FUNCTIONS(FOUND)
  return EDGEKIT_OK;
}

/* Takes the first GPU; CUDA_VISIBLE_DEVICES says which one that is. */
static int choose(edgekit_gpu *gpu) {
  int count = 0;
  cu_result code = cu.cuInit(0);
  if (code == CUDA_SUCCESS) code = cu.cuDeviceGetCount(&count);
  if (code == CUDA_NO_DEVICE || (code == CUDA_SUCCESS && count == 0))
    return failed(gpu, "NVIDIA's driver has no GPU on this machine: nvidia-smi lists those that it sees, and "
                  "CUDA_VISIBLE_DEVICES hides some");
  snprintf(gpu->name, sizeof gpu->name, "of NVIDIA's");
  if (code == CUDA_SUCCESS) code = cu.cuDeviceGet(&gpu->device, 0);
  if (code == CUDA_SUCCESS) code = cu.cuDeviceGetName(gpu->name, sizeof gpu->name, gpu->device);
  if (code != CUDA_SUCCESS) return explained(gpu, code, "start");
  size_t room = 0;
  cu.cuDeviceTotalMem_v2(&room, gpu->device);
  if (edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes > room)
    return failed(gpu, "the model takes %zu bytes of memory, and the device %s has %zu",
                  edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes, gpu->name, room);
  code = cu.cuDevicePrimaryCtxRetain(&gpu->context, gpu->device);
  if (code == CUDA_SUCCESS) code = cu.cuCtxSetCurrent(gpu->context);
  return code == CUDA_SUCCESS ? EDGEKIT_OK : explained(gpu, code, "start");
}

/* Loads the kernels: machine code, or PTX, which the driver compiles and keeps for the next start. */
static int load(edgekit_gpu *gpu) {
  char log[1024] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  char text[200];
  snprintf(text, sizeof text, "loading the kernels for %s", gpu->name);
  edgekit_progress(text);
  const cu_result code = cu.cuModuleLoadDataEx(&gpu->module, edgekit_on_gpu.source, 2, options, values);
  if (code == CUDA_SUCCESS) return EDGEKIT_OK;
  int major = 0, minor = 0, version = 0;
  cu.cuDeviceGetAttribute(&major, CU_COMPUTE_CAPABILITY_MAJOR, gpu->device);
  cu.cuDeviceGetAttribute(&minor, CU_COMPUTE_CAPABILITY_MINOR, gpu->device);
  cu.cuDriverGetVersion(&version);
  if (code == CUDA_NO_BINARY_FOR_GPU)
    return failed(gpu, "the model's kernels are for another GPU than %s: build it with arch = \"sm_%d%d\" in "
                  "[gpu] of the board's profile", gpu->name, major, minor);
  if (code == CUDA_UNSUPPORTED_PTX_VERSION || (code == CUDA_INVALID_PTX && version < 13000))
    return failed(gpu, "the driver of %s is of CUDA %d.%d, and the model's kernels need one of CUDA 13: "
                  "update the driver", gpu->name, version / 1000, version % 1000 / 10);
  if (*log != '\0')
    return failed(gpu, "the driver of %s does not take the model's kernels (CUDA's error %d): %.*s", gpu->name,
                  code, (int)strcspn(log, "\n"), log);
  return explained(gpu, code, "take the kernels");
}

/* Makes the arena, the host's part of it, and the weights. */
static int share(edgekit_gpu *gpu, unsigned char **arena) {
  cu_result code = cu.cuMemAlloc_v2(&gpu->arena, edgekit_on_gpu.shared_bytes);
  if (code == CUDA_SUCCESS && *arena == NULL) {
    code = cu.cuMemAllocHost_v2(&gpu->own, edgekit_model.arena_bytes);
    *arena = gpu->own;
  }
  if (code != CUDA_SUCCESS) return explained(gpu, code, "hold the tensors");
  gpu->host = *arena;
  if (edgekit_on_gpu.weight_bytes == 0) return EDGEKIT_OK;
  code = cu.cuMemAlloc_v2(&gpu->weights, edgekit_on_gpu.weight_bytes);
  if (code == CUDA_SUCCESS)
    code = cu.cuMemcpyHtoD_v2(gpu->weights, edgekit_on_gpu.weights, edgekit_on_gpu.weight_bytes);
  return code == CUDA_SUCCESS ? EDGEKIT_OK : explained(gpu, code, "hold the weights");
}

/* Finds the kernel of each launch, and lists its arguments. */
static int prepare(edgekit_gpu *gpu) {
  for (unsigned k = 0; k < edgekit_on_gpu.spans; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[k];
    gpu->span[k] = (span->is_weight ? gpu->weights : gpu->arena) + span->at;
  }
  for (unsigned k = 0; k < edgekit_on_gpu.launches; ++k) {
    const edgekit_launch *launch = &edgekit_on_gpu.launch[k];
    cu_result code = cu.cuModuleGetFunction(&gpu->kernel[k], gpu->module, launch->kernel);
    if (code != CUDA_SUCCESS) return explained(gpu, code, "find a kernel");
    int most = 0;
    const size_t threads = launch->group[0] * launch->group[1] * launch->group[2];
    code = cu.cuFuncGetAttribute(&most, CU_FUNCTION_MAX_THREADS_PER_BLOCK, gpu->kernel[k]);
    if (code != CUDA_SUCCESS) return explained(gpu, code, "describe a kernel");
    if (threads > (size_t)most)
      return failed(gpu, "the device %s runs the kernel %s in groups of %d threads at most, and the model has "
                    "groups of %zu", gpu->name, launch->kernel, most, threads);
    gpu->argument[k] = calloc(launch->arguments + 1, sizeof **gpu->argument);
    if (gpu->argument[k] == NULL) return failed(gpu, "there is no memory for the program");
    for (unsigned j = 0; j < launch->arguments; ++j)
      gpu->argument[k][j] = &gpu->span[launch->argument[j]];
  }
  return EDGEKIT_OK;
}

static int opened(edgekit_gpu *gpu, unsigned char **arena) {
  int status = loaded(gpu);
  if (status == EDGEKIT_OK) status = choose(gpu);
  if (status == EDGEKIT_OK) status = load(gpu);
  if (status == EDGEKIT_OK) status = share(gpu, arena);
  return status == EDGEKIT_OK ? prepare(gpu) : status;
}

edgekit_gpu *edgekit_gpu_open(unsigned char **arena, char *why, size_t size) {
  unsigned char *given = *arena;
  edgekit_gpu *gpu = calloc(1, sizeof *gpu);
  if (gpu != NULL) {
    gpu->why = why;
    gpu->why_size = size;
    gpu->span = calloc(edgekit_on_gpu.spans + 1, sizeof *gpu->span);
    gpu->kernel = calloc(edgekit_on_gpu.launches + 1, sizeof *gpu->kernel);
    gpu->argument = calloc(edgekit_on_gpu.launches + 1, sizeof *gpu->argument);
  }
  if (gpu == NULL || gpu->span == NULL || gpu->kernel == NULL || gpu->argument == NULL)
    snprintf(why, size, "there is no memory for the program");
  else if (opened(gpu, arena) == EDGEKIT_OK)
    return gpu;
  edgekit_gpu_close(gpu);
  *arena = given;
  return NULL;
}

void edgekit_gpu_close(edgekit_gpu *gpu) {
  if (gpu == NULL) return;
  if (gpu->context != NULL && cu.cuCtxSetCurrent(gpu->context) == CUDA_SUCCESS) {
    cu.cuCtxSynchronize();
    if (gpu->first != NULL) cu.cuEventDestroy_v2(gpu->first);
    if (gpu->last != NULL) cu.cuEventDestroy_v2(gpu->last);
    if (gpu->module != NULL) cu.cuModuleUnload(gpu->module);
    if (gpu->arena != 0) cu.cuMemFree_v2(gpu->arena);
    if (gpu->weights != 0) cu.cuMemFree_v2(gpu->weights);
    if (gpu->own != NULL) cu.cuMemFreeHost(gpu->own);
    cu.cuDevicePrimaryCtxRelease_v2(gpu->device);
  }
  for (unsigned k = 0; gpu->argument != NULL && k < edgekit_on_gpu.launches; ++k) free(gpu->argument[k]);
  free(gpu->argument);
  free(gpu->kernel);
  free(gpu->span);
  free(gpu);
}

/* Gives the host spans of the arena as they are on the device; waits for it. */
static int to_host(edgekit_gpu *gpu, const unsigned *spans, unsigned count) {
  for (unsigned k = 0; k < count; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[spans[k]];
    const cu_result code = cu.cuMemcpyDtoH_v2(gpu->host + span->at, gpu->arena + span->at, span->bytes);
    if (code != CUDA_SUCCESS) return explained(gpu, code, "finish its kernels");
  }
  return EDGEKIT_OK;
}

/* Gives the device what the host wrote. */
static int to_device(edgekit_gpu *gpu, const unsigned *spans, unsigned count) {
  for (unsigned k = 0; k < count; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[spans[k]];
    const cu_result code = cu.cuMemcpyHtoD_v2(gpu->arena + span->at, gpu->host + span->at, span->bytes);
    if (code != CUDA_SUCCESS) return explained(gpu, code, "take the inputs");
  }
  return EDGEKIT_OK;
}

int edgekit_gpu_measure(edgekit_gpu *gpu) {
  if (gpu->is_timed) return EDGEKIT_OK;
  cu_result code = cu.cuCtxSetCurrent(gpu->context);
  if (code == CUDA_SUCCESS && gpu->first == NULL) code = cu.cuEventCreate(&gpu->first, 0);
  if (code == CUDA_SUCCESS && gpu->last == NULL) code = cu.cuEventCreate(&gpu->last, 0);
  gpu->is_timed = code == CUDA_SUCCESS;
  return gpu->is_timed ? EDGEKIT_OK : explained(gpu, code, "time its kernels");
}

long long edgekit_gpu_nanoseconds(const edgekit_gpu *gpu) { return gpu->nanoseconds; }

int edgekit_gpu_begin(edgekit_gpu *gpu, int with_inputs) {
  gpu->nanoseconds = gpu->has_run = 0;
  /* Of this thread, which need not be the one of the run before. */
  const cu_result code = cu.cuCtxSetCurrent(gpu->context);
  if (code != CUDA_SUCCESS) return explained(gpu, code, "start a run");
  const edgekit_lending *ends = &edgekit_on_gpu.ends;
  return with_inputs ? to_device(gpu, ends->written, ends->writes) : EDGEKIT_OK;
}

int edgekit_gpu_end(edgekit_gpu *gpu) {
  const edgekit_lending *ends = &edgekit_on_gpu.ends;
  const cu_result code = cu.cuCtxSynchronize();
  if (code != CUDA_SUCCESS) return explained(gpu, code, "finish its kernels");
  float milliseconds = 0;
  if (gpu->is_timed && gpu->has_run && cu.cuEventElapsedTime(&milliseconds, gpu->first, gpu->last) == CUDA_SUCCESS)
    gpu->nanoseconds = (long long)(1e6 * (double)milliseconds);
  return to_host(gpu, ends->read, ends->reads);
}

int edgekit_gpu_launch(edgekit_gpu *gpu, unsigned first, unsigned count) {
  if (gpu->is_timed && !gpu->has_run) cu.cuEventRecord(gpu->first, NULL);
  for (unsigned k = first; k < first + count; ++k) {
    const edgekit_launch *launch = &edgekit_on_gpu.launch[k];
    const size_t *all = launch->all, *group = launch->group;
    const cu_result code = cu.cuLaunchKernel(
        gpu->kernel[k], (unsigned)(all[0] / group[0]), (unsigned)(all[1] / group[1]),
        (unsigned)(all[2] / group[2]), (unsigned)group[0], (unsigned)group[1], (unsigned)group[2], 0, NULL,
        gpu->argument[k], NULL);
    if (code != CUDA_SUCCESS) return explained(gpu, code, "run a kernel");
  }
  gpu->has_run = 1;
  if (gpu->is_timed) cu.cuEventRecord(gpu->last, NULL);
  return EDGEKIT_OK;
}

void *edgekit_gpu_address(edgekit_gpu *gpu, unsigned span) { return (void *)(uintptr_t)gpu->span[span]; }

int edgekit_gpu_lend(edgekit_gpu *gpu, const edgekit_lending *lent) {
  return to_host(gpu, lent->read, lent->reads);
}

int edgekit_gpu_take_back(edgekit_gpu *gpu, const edgekit_lending *lent) {
  return to_device(gpu, lent->written, lent->writes);
}
