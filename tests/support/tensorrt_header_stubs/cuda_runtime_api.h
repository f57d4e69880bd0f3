// A stub of edgekit's tests, not NVIDIA's: see NvInferVersion.h beside it.
#pragma once
#define CUDART_VERSION 12060
typedef struct EdgekitStubStream* cudaStream_t;
enum cudaError_t { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor };
enum { cudaStreamNonBlocking = 1 };
