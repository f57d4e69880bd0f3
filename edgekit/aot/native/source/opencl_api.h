/* The few declarations of OpenCL 1.2 that opencl.c needs. No package of headers is needed to build, and
   the library is opened where the model runs. */
#ifndef EDGEKIT_OPENCL_API_H
#define EDGEKIT_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_ulong cl_bitfield;
typedef struct cl_object *cl_platform, *cl_device, *cl_context, *cl_queue, *cl_memory, *cl_program,
    *cl_kernel, *cl_event;
typedef void (*cl_notify)(const char *, const void *, size_t, void *);
typedef struct {
  size_t origin, size;
} cl_region;

enum {
  CL_SUCCESS = 0,
  CL_DEVICE_NOT_FOUND = -1,
  CL_DEVICE_NOT_AVAILABLE = -2,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_EXEC_STATUS_ERROR = -14,
  CL_INVALID_BUFFER_SIZE = -61,

  CL_TRUE = 1,
  CL_QUEUE_PROFILING_ENABLE = 1 << 1,
  CL_PROFILING_COMMAND_START = 0x1282,
  CL_PROFILING_COMMAND_END = 0x1283,
  CL_PLATFORM_NAME = 0x0902,
  CL_DEVICE_TYPE_GPU = 1 << 2,
  CL_DEVICE_TYPE_ANY = 2 | 4 | 8, /* CPUs, GPUs and accelerators */
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
  CL_MEM_READ_WRITE = 1 << 0,
  CL_MEM_READ_ONLY = 1 << 2,
  CL_MEM_ALLOC_HOST_PTR = 1 << 4,
  CL_MEM_COPY_HOST_PTR = 1 << 5,
  CL_MAP_READ = 1 << 0,
  CL_MAP_WRITE = 1 << 1,
  CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
  CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0
};

/* Result, name, parameters. */
#define OPENCL_FUNCTIONS(F)                                                                          \
  F(cl_int, clGetPlatformIDs, (cl_uint, cl_platform *, cl_uint *))                                   \
  F(cl_int, clGetDeviceIDs, (cl_platform, cl_bitfield, cl_uint, cl_device *, cl_uint *))             \
  F(cl_int, clGetDeviceInfo, (cl_device, cl_uint, size_t, void *, size_t *))                         \
  F(cl_context, clCreateContext,                                                                     \
    (const intptr_t *, cl_uint, const cl_device *, cl_notify, void *, cl_int *))                     \
  F(cl_queue, clCreateCommandQueue, (cl_context, cl_device, cl_bitfield, cl_int *))                  \
  F(cl_memory, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                  \
  F(cl_memory, clCreateSubBuffer, (cl_memory, cl_bitfield, cl_uint, const void *, cl_int *))         \
  F(cl_program, clCreateProgramWithSource,                                                           \
    (cl_context, cl_uint, const char **, const size_t *, cl_int *))                                  \
  F(cl_program, clCreateProgramWithBinary,                                                           \
    (cl_context, cl_uint, const cl_device *, const size_t *, const unsigned char **, cl_int *,       \
     cl_int *))                                                                                      \
  F(cl_int, clBuildProgram,                                                                          \
    (cl_program, cl_uint, const cl_device *, const char *, void (*)(cl_program, void *), void *))    \
  F(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                       \
  F(cl_int, clGetProgramBuildInfo, (cl_program, cl_device, cl_uint, size_t, void *, size_t *))       \
  F(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                                 \
  F(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                              \
  F(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device, cl_uint, size_t, void *, size_t *))     \
  F(cl_int, clEnqueueNDRangeKernel,                                                                  \
    (cl_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,          \
     const cl_event *, cl_event *))                                                                  \
  F(cl_int, clEnqueueReadBuffer,                                                                     \
    (cl_queue, cl_memory, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))   \
  F(cl_int, clEnqueueWriteBuffer,                                                                    \
    (cl_queue, cl_memory, cl_uint, size_t, size_t, const void *, cl_uint, const cl_event *,          \
     cl_event *))                                                                                    \
  F(void *, clEnqueueMapBuffer,                                                                      \
    (cl_queue, cl_memory, cl_uint, cl_bitfield, size_t, size_t, cl_uint, const cl_event *,           \
     cl_event *, cl_int *))                                                                          \
  F(cl_int, clEnqueueUnmapMemObject,                                                                 \
    (cl_queue, cl_memory, void *, cl_uint, const cl_event *, cl_event *))                            \
  F(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *))                  \
  F(cl_int, clReleaseEvent, (cl_event))                                                              \
  F(cl_int, clFinish, (cl_queue))                                                                    \
  F(cl_int, clReleaseKernel, (cl_kernel))                                                            \
  F(cl_int, clReleaseProgram, (cl_program))                                                          \
  F(cl_int, clReleaseMemObject, (cl_memory))                                                         \
  F(cl_int, clReleaseCommandQueue, (cl_queue))                                                       \
  F(cl_int, clReleaseContext, (cl_context))

#endif
