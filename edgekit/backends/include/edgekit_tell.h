// What a region says while it runs: to the application's listener, which edgekit's devices are too.
#pragma once

#ifdef EDGEKIT_WITH_TVM
#include <tvm/ffi/c_api.h>
#endif

namespace edgekit {

// Returns whether there is a listener. A text that begins with "note: " or "warning: " says how the
// model runs, and is kept; any other is the progress of work that takes long.
#ifdef EDGEKIT_WITH_TVM
inline bool heard(const char* text) {
  static const char name[] = "edgekit.progress";
  const TVMFFIByteArray wanted{name, sizeof(name) - 1};
  TVMFFIObjectHandle listener = nullptr;
  if (TVMFFIFunctionGetGlobal(&wanted, &listener) != 0 || listener == nullptr) return false;
  TVMFFIAny argument{}, result{};
  argument.type_index = kTVMFFIRawStr;
  argument.v_c_str = text;
  const int failed = TVMFFIFunctionCall(listener, &argument, 1, &result);
  TVMFFIObjectDecRef(listener);
  return failed == 0;
}
#else
extern "C" int edgekit_progress(const char* text);

inline bool heard(const char* text) { return edgekit_progress(text) != 0; }
#endif

}  // namespace edgekit
