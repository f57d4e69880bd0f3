#pragma once
#include "cuda.h"

typedef _Float16 half;
typedef half __half;
struct __half2 { half x, y; };
typedef __half2 half2;
inline bool __hgt(half a, half b) { return a > b; }
inline bool __hlt(half a, half b) { return a < b; }
inline float __half2float(half a) { return (float)a; }
inline half __float2half(float a) { return (half)a; }
inline half __float2half_rn(float a) { return (half)a; }
inline bool __hisnan(half a) { return a != a; }
#define EDGEKIT_HALF(name) inline half h##name(half a) { return (half)name##f((float)a); }
EDGEKIT_HALF(exp) EDGEKIT_HALF(exp2) EDGEKIT_HALF(log) EDGEKIT_HALF(log2) EDGEKIT_HALF(log10)
EDGEKIT_HALF(sqrt) EDGEKIT_HALF(rsqrt) EDGEKIT_HALF(sin) EDGEKIT_HALF(cos) EDGEKIT_HALF(tanh)
EDGEKIT_HALF(floor) EDGEKIT_HALF(ceil) EDGEKIT_HALF(trunc) EDGEKIT_HALF(rint) EDGEKIT_HALF(tan)
EDGEKIT_HALF(atan) EDGEKIT_HALF(erf)
inline half hpow(half a, half b) { return (half)powf((float)a, (float)b); }
inline half __habs(half a) { return a < 0 ? -a : a; }
