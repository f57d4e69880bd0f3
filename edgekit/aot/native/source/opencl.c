/* A program's GPU through OpenCL: one device, one queue in order, and every object made at the start, so
   that a run only starts kernels. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edgekit.h"
#include "gpu.h"
#include "kernel_cache.h"
#include "model.h"
#include "opencl_api.h"

#define DECLARED(result, name, parameters) result(*name) parameters;
static struct {
  OPENCL_FUNCTIONS(DECLARED)
} cl;

struct edgekit_gpu {
  cl_device device;
  cl_context context;
  cl_queue queue;
  cl_program program;
  cl_memory arena, weights;
  cl_memory *span;
  cl_kernel *kernel; /* of each launch, with its arguments */
  cl_event *event;   /* of each launch of this run, where kernels are timed */
  int measures;
  long long nanoseconds;
  unsigned char *host;
  int shares; /* whether `host` is the device's memory: then it is mapped, and else it is copied */
  int lent;   /* whether the host has the inputs and outputs */
  void *scratch; /* a mapping of what only the host uses of the arena */
  void *own;     /* the host's memory, if it is not the device's and not the caller's */
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

/* Says what an error of OpenCL means for the caller, who was `doing` something. */
static int explained(edgekit_gpu *gpu, cl_int code, const char *doing) {
  switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return failed(gpu, "the device %s has no room to %s: the model takes %zu bytes of it (OpenCL's error %d)",
                    gpu->name, doing, edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes, code);
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_EXEC_STATUS_ERROR:
      return failed(gpu, "the device %s was lost when it was to %s (OpenCL's error %d): "
                    "load the model again, and look into the kernel's log",
                    gpu->name, doing, code);
    default:
      return failed(gpu, "the device %s failed to %s (OpenCL's error %d)", gpu->name, doing, code);
  }
}

/* Loads OpenCL once for the process. */
static int loaded(edgekit_gpu *gpu) {
  static const char *const usual[] = {"libOpenCL.so.1", "libOpenCL.so"};
  const char *chosen = getenv("EDGEKIT_OPENCL_LIBRARY");
  void *library = NULL;
  if (cl.clReleaseContext != NULL) return EDGEKIT_OK;
  /* A relative path would mean a file of whatever folder the caller is in. */
  if (chosen != NULL && (*chosen == '/' || strchr(chosen, '/') == NULL))
    library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
  for (unsigned k = 0; chosen == NULL && library == NULL && k < 2; ++k)
    library = dlopen(usual[k], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return failed(gpu, "this machine has no OpenCL: %s does not load; install the GPU's driver and "
                  "ocl-icd-libopencl1, or name the library in EDGEKIT_OPENCL_LIBRARY",
                  chosen == NULL ? usual[0] : chosen);
#define FOUND(result, name, parameters)                                          \
  *(void **)&cl.name = dlsym(library, #name);                                    \
  if (cl.name == NULL) {                                                         \
    memset(&cl, 0, sizeof cl);                                                   \
    return failed(gpu, "the OpenCL of this machine is too old: it lacks " #name); \
  }
  OPENCL_FUNCTIONS(FOUND)
  return EDGEKIT_OK;
}

static cl_ulong number(const edgekit_gpu *gpu, cl_uint what, size_t size) {
  cl_ulong value = 0; /* OpenCL writes 4 or 8 bytes, and all machines here have the low ones first */
  cl.clGetDeviceInfo(gpu->device, what, size, &value, NULL);
  return value;
}

static void words(cl_device device, cl_uint what, char *text, size_t size) {
  if (cl.clGetDeviceInfo(device, what, size, text, NULL) != CL_SUCCESS) *text = '\0';
  text[size - 1] = '\0';
}

/* Takes the first device that EDGEKIT_OPENCL_DEVICE is part of the name of; without it the first GPU, and
   without a GPU the first device. */
static int choose(edgekit_gpu *gpu) {
  enum { MOST = 16 };
  const char *wanted = getenv("EDGEKIT_OPENCL_DEVICE");
  cl_platform platforms[MOST];
  cl_uint count = 0;
  if (cl.clGetPlatformIDs(MOST, platforms, &count) != CL_SUCCESS) count = 0;
  for (cl_uint k = 0; k < (count < MOST ? count : MOST); ++k) {
    cl_device devices[MOST];
    cl_uint found = 0;
    if (cl.clGetDeviceIDs(platforms[k], CL_DEVICE_TYPE_ANY, MOST, devices, &found) != CL_SUCCESS)
      continue;
    for (cl_uint j = 0; j < (found < MOST ? found : MOST); ++j) {
      char name[sizeof gpu->name];
      cl_ulong type = 0;
      words(devices[j], CL_DEVICE_NAME, name, sizeof name);
      cl.clGetDeviceInfo(devices[j], CL_DEVICE_TYPE, sizeof type, &type, NULL);
      const int is_better = wanted != NULL ? strstr(name, wanted) != NULL
                                           : gpu->device == NULL || type & CL_DEVICE_TYPE_GPU;
      if (!is_better) continue;
      gpu->device = devices[j];
      memcpy(gpu->name, name, sizeof name);
      if (wanted != NULL || type & CL_DEVICE_TYPE_GPU) return EDGEKIT_OK;
    }
  }
  if (gpu->device != NULL) return EDGEKIT_OK;
  if (wanted != NULL)
    return failed(gpu, "OpenCL has no device whose name holds %s, which EDGEKIT_OPENCL_DEVICE wants",
                  wanted);
  return failed(gpu, "OpenCL has no device on this machine: install the GPU's driver, or "
                "pocl-opencl-icd, which runs kernels on the CPU");
}

static int fits(edgekit_gpu *gpu) {
  const size_t alignment = number(gpu, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(cl_uint)) / 8;
  if (!number(gpu, CL_DEVICE_AVAILABLE, sizeof(cl_uint)))
    return explained(gpu, CL_DEVICE_NOT_AVAILABLE, "start");
  if (alignment > edgekit_on_gpu.alignment)
    return failed(gpu, "the device %s wants tensors at multiples of %zu bytes, and the model has them at "
                  "multiples of %zu", gpu->name, alignment, edgekit_on_gpu.alignment);
  const cl_ulong room = number(gpu, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
  if (edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes > room)
    return failed(gpu, "the model takes %zu bytes of memory, and the device %s has %llu",
                  edgekit_on_gpu.shared_bytes + edgekit_on_gpu.weight_bytes, gpu->name, (unsigned long long)room);
  return EDGEKIT_OK;
}

/* Tells the driver's first words about the source. */
static int refused(edgekit_gpu *gpu, cl_int code) {
  size_t size = 0;
  cl.clGetProgramBuildInfo(gpu->program, gpu->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
  char *log = calloc(1, size + 1);
  if (log != NULL)
    cl.clGetProgramBuildInfo(gpu->program, gpu->device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
  const char *error = log == NULL ? NULL : strstr(log, "error");
  const char *first = error != NULL ? error : log != NULL ? log + strspn(log, " \n\t") : "";
  failed(gpu, "the driver of %s does not compile the model's kernels (OpenCL's error %d): %.*s",
         gpu->name, code, (int)strcspn(first, "\n"), first);
  free(log);
  return EDGEKIT_DEVICE_FAILED;
}

static int built(edgekit_gpu *gpu, const char *options) {
  return cl.clBuildProgram(gpu->program, 1, &gpu->device, options, NULL, NULL);
}

static void keep(edgekit_gpu *gpu, const char *key) {
  size_t size = 0;
  cl.clGetProgramInfo(gpu->program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
  unsigned char *binary = size == 0 ? NULL : malloc(size);
  if (binary == NULL) return;
  if (cl.clGetProgramInfo(gpu->program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
    edgekit_keep_kernels(key, binary, size);
  free(binary);
}

/* Makes the kernels' program, from what an earlier start left or from source. */
static int compile(edgekit_gpu *gpu) {
  char version[128], driver[128], key[640];
  const int rounds = (number(gpu, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(cl_ulong)) &
                      CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  const char *options = rounds ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
  words(gpu->device, CL_DEVICE_VERSION, version, sizeof version);
  words(gpu->device, CL_DRIVER_VERSION, driver, sizeof driver);
  snprintf(key, sizeof key, "%s\n%s\n%s\n%s\n%s", gpu->name, version, driver, options, edgekit_on_gpu.key);
  size_t size = 0;
  unsigned char *binary = edgekit_kept_kernels(key, &size);
  cl_int code = CL_SUCCESS;
  if (binary != NULL) {
    const unsigned char *given = binary;
    gpu->program =
        cl.clCreateProgramWithBinary(gpu->context, 1, &gpu->device, &size, &given, NULL, &code);
    free(binary);
    if (gpu->program != NULL && code == CL_SUCCESS && built(gpu, options) == CL_SUCCESS)
      return EDGEKIT_OK;
    if (gpu->program != NULL) cl.clReleaseProgram(gpu->program); /* made by another driver */
  }
  char text[200];
  snprintf(text, sizeof text, "compiling the kernels for %s", gpu->name);
  edgekit_progress(text);
  const char *source = edgekit_on_gpu.source;
  gpu->program = cl.clCreateProgramWithSource(gpu->context, 1, &source, &edgekit_on_gpu.source_bytes, &code);
  if (gpu->program == NULL) return explained(gpu, code, "take the kernels");
  code = built(gpu, options);
  if (code != CL_SUCCESS) return refused(gpu, code);
  keep(gpu, key);
  return EDGEKIT_OK;
}

static void *mapped(edgekit_gpu *gpu, size_t at, size_t bytes, cl_bitfield how, cl_int *code) {
  return cl.clEnqueueMapBuffer(gpu->queue, gpu->arena, CL_TRUE, how, at, bytes, 0, NULL, NULL, code);
}

/* Makes the arena. It is the host's memory as well where the device has no memory of its own, and where
   every mapping of it lies where the first one does. */
static int share(edgekit_gpu *gpu, unsigned char **arena) {
  const size_t bytes = edgekit_model.arena_bytes, shared = edgekit_on_gpu.shared_bytes;
  cl_int code = CL_SUCCESS;
  gpu->shares = *arena == NULL && number(gpu, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_uint));
  if (gpu->shares) {
    const cl_bitfield both = CL_MAP_READ | CL_MAP_WRITE;
    gpu->arena = cl.clCreateBuffer(gpu->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                   bytes, NULL, &code);
    if (gpu->arena == NULL) return explained(gpu, code, "hold the tensors");
    unsigned char *all = mapped(gpu, 0, shared, both, &code);
    if (all == NULL) return explained(gpu, code, "lend its memory");
    cl.clEnqueueUnmapMemObject(gpu->queue, gpu->arena, all, 0, NULL, NULL);
    unsigned char *rest = all + shared;
    if (bytes > shared) gpu->scratch = rest = mapped(gpu, shared, bytes - shared, both, &code);
    unsigned char *again = mapped(gpu, 0, 1, both, &code);
    if (again != NULL) cl.clEnqueueUnmapMemObject(gpu->queue, gpu->arena, again, 0, NULL, NULL);
    if (again == all && rest == all + shared && (uintptr_t)all % EDGEKIT_ALIGNMENT == 0) {
      *arena = gpu->host = all;
      return EDGEKIT_OK;
    }
    cl.clFinish(gpu->queue);
    cl.clReleaseMemObject(gpu->arena);
    gpu->scratch = NULL;
    gpu->shares = 0;
  }
  if (*arena == NULL) {
    if (posix_memalign(&gpu->own, EDGEKIT_ALIGNMENT, bytes) != 0) {
      gpu->own = NULL;
      return failed(gpu, "there is no memory for %zu bytes of tensors", bytes);
    }
    *arena = gpu->own;
  }
  gpu->host = *arena;
  gpu->arena = cl.clCreateBuffer(gpu->context, CL_MEM_READ_WRITE, shared, NULL, &code);
  return gpu->arena == NULL ? explained(gpu, code, "hold the tensors") : EDGEKIT_OK;
}

/* Makes the weights, and a handle of each part of memory that a kernel gets. */
static int divide(edgekit_gpu *gpu) {
  cl_int code = CL_SUCCESS;
  if (edgekit_on_gpu.weight_bytes > 0) {
    gpu->weights = cl.clCreateBuffer(gpu->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                     edgekit_on_gpu.weight_bytes, (void *)edgekit_on_gpu.weights, &code);
    if (gpu->weights == NULL) return explained(gpu, code, "hold the weights");
  }
  for (unsigned k = 0; k < edgekit_on_gpu.spans; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[k];
    const cl_region region = {span->at, span->bytes};
    gpu->span[k] =
        cl.clCreateSubBuffer(span->is_weight ? gpu->weights : gpu->arena,
                             span->is_weight ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE,
                             CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (gpu->span[k] == NULL) return explained(gpu, code, "divide its memory");
  }
  return EDGEKIT_OK;
}

/* Makes a kernel with its arguments for each launch. */
static int prepare(edgekit_gpu *gpu) {
  for (unsigned k = 0; k < edgekit_on_gpu.launches; ++k) {
    const edgekit_launch *launch = &edgekit_on_gpu.launch[k];
    cl_int code = CL_SUCCESS;
    gpu->kernel[k] = cl.clCreateKernel(gpu->program, launch->kernel, &code);
    if (gpu->kernel[k] == NULL) return explained(gpu, code, "make a kernel");
    for (unsigned j = 0; j < launch->arguments && code == CL_SUCCESS; ++j)
      code = cl.clSetKernelArg(gpu->kernel[k], j, sizeof(cl_memory), &gpu->span[launch->argument[j]]);
    if (code != CL_SUCCESS) return explained(gpu, code, "take a kernel's tensors");
    size_t most = 0;
    cl.clGetKernelWorkGroupInfo(gpu->kernel[k], gpu->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                &most, NULL);
    const size_t threads = launch->group[0] * launch->group[1] * launch->group[2];
    if (threads > most)
      return failed(gpu, "the device %s runs the kernel %s in groups of %zu threads at most, and the model "
                    "has groups of %zu: build it with gpu.threads = %zu in the board's profile",
                    gpu->name, launch->kernel, most, threads, most);
  }
  return EDGEKIT_OK;
}

static int opened(edgekit_gpu *gpu, unsigned char **arena) {
  cl_int code = CL_SUCCESS;
  int status = loaded(gpu);
  if (status == EDGEKIT_OK) status = choose(gpu);
  if (status == EDGEKIT_OK) status = fits(gpu);
  if (status != EDGEKIT_OK) return status;
  gpu->context = cl.clCreateContext(NULL, 1, &gpu->device, NULL, NULL, &code);
  if (gpu->context == NULL) return explained(gpu, code, "start");
  gpu->queue = cl.clCreateCommandQueue(gpu->context, gpu->device, 0, &code);
  if (gpu->queue == NULL) return explained(gpu, code, "make a queue");
  status = compile(gpu);
  if (status == EDGEKIT_OK) status = share(gpu, arena);
  if (status == EDGEKIT_OK) status = divide(gpu);
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
    gpu->event = calloc(edgekit_on_gpu.launches + 1, sizeof *gpu->event);
  }
  if (gpu == NULL || gpu->span == NULL || gpu->kernel == NULL || gpu->event == NULL)
    snprintf(why, size, "there is no memory for the program");
  else if (opened(gpu, arena) == EDGEKIT_OK && edgekit_gpu_end(gpu) == EDGEKIT_OK)
    return gpu;
  edgekit_gpu_close(gpu);
  *arena = given;
  return NULL;
}

void edgekit_gpu_close(edgekit_gpu *gpu) {
  if (gpu == NULL) return;
  if (gpu->queue != NULL) {
    if (gpu->lent) edgekit_gpu_begin(gpu, 0);
    if (gpu->scratch != NULL) cl.clEnqueueUnmapMemObject(gpu->queue, gpu->arena, gpu->scratch, 0, NULL, NULL);
    cl.clFinish(gpu->queue);
  }
  for (unsigned k = 0; gpu->kernel != NULL && k < edgekit_on_gpu.launches; ++k)
    if (gpu->kernel[k] != NULL) cl.clReleaseKernel(gpu->kernel[k]);
  for (unsigned k = 0; gpu->event != NULL && k < edgekit_on_gpu.launches; ++k)
    if (gpu->event[k] != NULL) cl.clReleaseEvent(gpu->event[k]);
  for (unsigned k = 0; gpu->span != NULL && k < edgekit_on_gpu.spans; ++k)
    if (gpu->span[k] != NULL) cl.clReleaseMemObject(gpu->span[k]);
  if (gpu->program != NULL) cl.clReleaseProgram(gpu->program);
  if (gpu->arena != NULL) cl.clReleaseMemObject(gpu->arena);
  if (gpu->weights != NULL) cl.clReleaseMemObject(gpu->weights);
  if (gpu->queue != NULL) cl.clReleaseCommandQueue(gpu->queue);
  if (gpu->context != NULL) cl.clReleaseContext(gpu->context);
  free(gpu->event);
  free(gpu->kernel);
  free(gpu->span);
  free(gpu->own);
  free(gpu);
}

/* Gives the host spans of the arena as they are on the device; waits for it. */
static int to_host(edgekit_gpu *gpu, const unsigned *spans, unsigned count, cl_bitfield how) {
  for (unsigned k = 0; k < count; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[spans[k]];
    cl_int code = CL_SUCCESS;
    if (gpu->shares) {
      const void *found = mapped(gpu, span->at, span->bytes, how, &code);
      if (found != NULL && found != gpu->host + span->at)
        return failed(gpu, "the device %s moved memory that it shares", gpu->name);
    } else if (how & CL_MAP_READ) {
      code = cl.clEnqueueReadBuffer(gpu->queue, gpu->arena, CL_TRUE, span->at, span->bytes,
                                    gpu->host + span->at, 0, NULL, NULL);
    }
    if (code != CL_SUCCESS) return explained(gpu, code, "finish its kernels");
  }
  return EDGEKIT_OK;
}

/* Gives the device what the host wrote; without `wrote`, the host only read. */
static int to_device(edgekit_gpu *gpu, const unsigned *spans, unsigned count, int wrote) {
  for (unsigned k = 0; k < count; ++k) {
    const edgekit_span *span = &edgekit_on_gpu.span[spans[k]];
    unsigned char *host = gpu->host + span->at;
    cl_int code = CL_SUCCESS;
    if (gpu->shares)
      code = cl.clEnqueueUnmapMemObject(gpu->queue, gpu->arena, host, 0, NULL, NULL);
    else if (wrote)
      code = cl.clEnqueueWriteBuffer(gpu->queue, gpu->arena, CL_TRUE, span->at, span->bytes, host, 0,
                                     NULL, NULL);
    if (code != CL_SUCCESS) return explained(gpu, code, "take the inputs");
  }
  return EDGEKIT_OK;
}

/* A queue that times kernels may be slower, so that only what is measured by steps gets one. */
int edgekit_gpu_measure(edgekit_gpu *gpu) {
  cl_int code = CL_SUCCESS;
  if (gpu->measures) return EDGEKIT_OK;
  cl_queue queue =
      cl.clCreateCommandQueue(gpu->context, gpu->device, CL_QUEUE_PROFILING_ENABLE, &code);
  if (queue == NULL) return explained(gpu, code, "make a queue that times kernels");
  cl.clFinish(gpu->queue);
  cl.clReleaseCommandQueue(gpu->queue);
  gpu->queue = queue;
  gpu->measures = 1;
  return EDGEKIT_OK;
}

long long edgekit_gpu_nanoseconds(const edgekit_gpu *gpu) { return gpu->nanoseconds; }

/* Adds up what the device's clock says of the kernels that have ended. */
static void add_up(edgekit_gpu *gpu) {
  gpu->nanoseconds = 0;
  for (unsigned k = 0; gpu->measures && k < edgekit_on_gpu.launches; ++k) {
    cl_ulong start = 0, end = 0;
    if (gpu->event[k] == NULL) continue;
    cl.clGetEventProfilingInfo(gpu->event[k], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
    cl.clGetEventProfilingInfo(gpu->event[k], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    cl.clReleaseEvent(gpu->event[k]);
    gpu->event[k] = NULL;
    if (end > start) gpu->nanoseconds += (long long)(end - start);
  }
}

int edgekit_gpu_begin(edgekit_gpu *gpu, int with_inputs) {
  const edgekit_lending *ends = &edgekit_on_gpu.ends;
  const int is_lent = gpu->lent;
  gpu->lent = 0;
  if (!is_lent) return EDGEKIT_OK;
  const int status = to_device(gpu, ends->written, ends->writes, with_inputs);
  return status == EDGEKIT_OK ? to_device(gpu, ends->read, ends->reads, 0) : status;
}

int edgekit_gpu_end(edgekit_gpu *gpu) {
  const edgekit_lending *ends = &edgekit_on_gpu.ends;
  int status = to_host(gpu, ends->read, ends->reads, CL_MAP_READ);
  if (status == EDGEKIT_OK && gpu->shares)
    status = to_host(gpu, ends->written, ends->writes, CL_MAP_READ | CL_MAP_WRITE);
  if (status == EDGEKIT_OK && cl.clFinish(gpu->queue) != CL_SUCCESS)
    status = explained(gpu, CL_DEVICE_NOT_AVAILABLE, "finish its kernels");
  add_up(gpu);
  gpu->lent = status == EDGEKIT_OK;
  return status;
}

int edgekit_gpu_launch(edgekit_gpu *gpu, unsigned first, unsigned count) {
  for (unsigned k = first; k < first + count; ++k) {
    const edgekit_launch *launch = &edgekit_on_gpu.launch[k];
    if (gpu->event[k] != NULL) cl.clReleaseEvent(gpu->event[k]); /* of a run that failed */
    gpu->event[k] = NULL;
    const cl_int code =
        cl.clEnqueueNDRangeKernel(gpu->queue, gpu->kernel[k], 3, NULL, launch->all, launch->group, 0,
                                  NULL, gpu->measures ? &gpu->event[k] : NULL);
    if (code != CL_SUCCESS) return explained(gpu, code, "run a kernel");
  }
  return EDGEKIT_OK;
}

int edgekit_gpu_lend(edgekit_gpu *gpu, const edgekit_lending *lent) {
  const int status = to_host(gpu, lent->read, lent->reads, CL_MAP_READ);
  return status == EDGEKIT_OK ? to_host(gpu, lent->written, lent->writes, CL_MAP_WRITE) : status;
}

int edgekit_gpu_take_back(edgekit_gpu *gpu, const edgekit_lending *lent) {
  const int status = to_device(gpu, lent->written, lent->writes, 1);
  return status == EDGEKIT_OK ? to_device(gpu, lent->read, lent->reads, 0) : status;
}
