// A stub of edgekit's tests, not NVIDIA's: enough for the runner to be compiled and linked, so that
// the way there can be tested. It proves nothing about TensorRT.
#define NV_TENSORRT_MAJOR 10
#define NV_TENSORRT_MINOR 99
#define NV_TENSORRT_PATCH 0
#define NV_TENSORRT_VERSION 109900
