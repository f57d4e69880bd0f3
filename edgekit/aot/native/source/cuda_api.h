/* The few declarations of NVIDIA's driver interface that cuda.c needs. No package of headers is needed to
   build, and the driver's library is opened where the model runs. */
#ifndef EDGEKIT_CUDA_API_H
#define EDGEKIT_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_address;
typedef struct cu_object *cu_context, *cu_module, *cu_function, *cu_stream, *cu_event;

enum {
  CUDA_SUCCESS = 0,
  CUDA_OUT_OF_MEMORY = 2,
  CUDA_NO_DEVICE = 100,
  CUDA_NO_BINARY_FOR_GPU = 209,
  CUDA_INVALID_PTX = 218,
  CUDA_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_SYSTEM_DRIVER_MISMATCH = 803,

  CU_MAX_THREADS_PER_BLOCK = 1,
  CU_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_COMPUTE_CAPABILITY_MINOR = 76,
  CU_FUNCTION_MAX_THREADS_PER_BLOCK = 0,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_BYTES = 6
};

/* Result, name, parameters: the names are those of the versions that CUDA 12 and 13 share. */
#define CUDA_FUNCTIONS(F)                                                                            \
  F(cu_result, cuInit, (unsigned))                                                                   \
  F(cu_result, cuGetErrorName, (cu_result, const char **))                                           \
  F(cu_result, cuDriverGetVersion, (int *))                                                          \
  F(cu_result, cuDeviceGetCount, (int *))                                                            \
  F(cu_result, cuDeviceGet, (cu_device *, int))                                                      \
  F(cu_result, cuDeviceGetName, (char *, int, cu_device))                                            \
  F(cu_result, cuDeviceGetAttribute, (int *, int, cu_device))                                        \
  F(cu_result, cuDeviceTotalMem_v2, (size_t *, cu_device))                                           \
  F(cu_result, cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                  \
  F(cu_result, cuDevicePrimaryCtxRelease_v2, (cu_device))                                            \
  F(cu_result, cuCtxSetCurrent, (cu_context))                                                        \
  F(cu_result, cuCtxSynchronize, (void))                                                             \
  F(cu_result, cuModuleLoadDataEx, (cu_module *, const void *, unsigned, int *, void **))            \
  F(cu_result, cuModuleUnload, (cu_module))                                                          \
  F(cu_result, cuModuleGetFunction, (cu_function *, cu_module, const char *))                        \
  F(cu_result, cuFuncGetAttribute, (int *, int, cu_function))                                        \
  F(cu_result, cuMemAlloc_v2, (cu_address *, size_t))                                                \
  F(cu_result, cuMemFree_v2, (cu_address))                                                           \
  F(cu_result, cuMemAllocHost_v2, (void **, size_t))                                                 \
  F(cu_result, cuMemFreeHost, (void *))                                                              \
  F(cu_result, cuMemcpyHtoD_v2, (cu_address, const void *, size_t))                                  \
  F(cu_result, cuMemcpyDtoH_v2, (void *, cu_address, size_t))                                        \
  F(cu_result, cuEventCreate, (cu_event *, unsigned))                                                \
  F(cu_result, cuEventRecord, (cu_event, cu_stream))                                                 \
  F(cu_result, cuEventElapsedTime, (float *, cu_event, cu_event))                                    \
  F(cu_result, cuEventDestroy_v2, (cu_event))                                                        \
  F(cu_result, cuLaunchKernel,                                                                       \
    (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream,   \
     void **, void **))

#endif
