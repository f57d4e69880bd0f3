// CUDA's C++ for g++: what the kernels of edgekit use of it, computed by threads that take turns.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

using std::isnan;
using std::isinf;

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct edgekit_three {
  unsigned x, y, z;
};
extern "C" edgekit_three threadIdx, blockIdx;
extern "C" void edgekit_wait();  // until every thread of the group has come here
inline void __syncthreads() { edgekit_wait(); }

#define EDGEKIT_VECTORS(kind, word)                                      \
  struct word##2 { kind x, y; };                                         \
  struct word##3 { kind x, y, z; };                                      \
  struct word##4 { kind x, y, z, w; };                                   \
  inline word##2 make_##word##2(kind x, kind y) { return {x, y}; }       \
  inline word##3 make_##word##3(kind x, kind y, kind z) { return {x, y, z}; } \
  inline word##4 make_##word##4(kind x, kind y, kind z, kind w) { return {x, y, z, w}; }
EDGEKIT_VECTORS(signed char, char)
EDGEKIT_VECTORS(unsigned char, uchar)
EDGEKIT_VECTORS(short, short)
EDGEKIT_VECTORS(unsigned short, ushort)
EDGEKIT_VECTORS(int, int)
EDGEKIT_VECTORS(unsigned, uint)
EDGEKIT_VECTORS(float, float)
EDGEKIT_VECTORS(double, double)
EDGEKIT_VECTORS(long long, longlong)

template <typename Made, typename Given>
Made edgekit_saturated(Given given) {
  const long double least = std::is_signed<Made>::value ? -std::ldexp(1.0L, 8 * sizeof(Made) - 1) : 0;
  const long double most =
      std::ldexp(1.0L, 8 * sizeof(Made) - (std::is_signed<Made>::value ? 1 : 0)) - 1;
  if (std::isnan(given)) return 0;
  if (given < least) return (Made)least;
  return given > most ? (Made)most : (Made)given;
}
#define EDGEKIT_CONVERSIONS(of)                                                             \
  inline int __##of##2int_rz(of a) { return edgekit_saturated<int>(a); }                    \
  inline long long __##of##2ll_rz(of a) { return edgekit_saturated<long long>(a); }         \
  inline unsigned long long __##of##2ull_rz(of a) { return edgekit_saturated<unsigned long long>(a); }
EDGEKIT_CONVERSIONS(float)
EDGEKIT_CONVERSIONS(double)

inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __sinf(float a) { return sinf(a); }
inline float __cosf(float a) { return cosf(a); }
inline float __tanf(float a) { return tanf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __log10f(float a) { return log10f(a); }
inline float __exp10f(float a) { return powf(10, a); }
inline float exp10f(float a) { return powf(10, a); }
