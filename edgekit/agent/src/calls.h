// Calls between this program and TVM's libraries through TVM's C interface, where an error is a
// code. In its C++ interface an error is an exception, which can't cross from one C++ library to
// another. A compiler that brings its own library, such as Zig, puts two of them in one process.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <utility>
#include <vector>

namespace edgekit {

// Returns the result of a TVM function; throws tvm::ffi::Error in this program if it fails.
inline tvm::ffi::Any CallWith(const tvm::ffi::Function& function,
                              const std::vector<tvm::ffi::AnyView>& arguments) {
  tvm::ffi::Any result;
  auto* object = const_cast<tvm::ffi::FunctionObj*>(
      static_cast<const tvm::ffi::FunctionObj*>(function.get()));
  int failed = object->safe_call(object, reinterpret_cast<const TVMFFIAny*>(arguments.data()),
                                 static_cast<int32_t>(arguments.size()),
                                 reinterpret_cast<TVMFFIAny*>(&result));
  if (failed != 0) throw tvm::ffi::details::MoveFromSafeCallRaised();
  return result;
}

template <typename... Values>
tvm::ffi::Any Call(const tvm::ffi::Function& function, const Values&... values) {
  return CallWith(function, {tvm::ffi::AnyView(values)...});
}

// Finds a function that TVM's libraries register by name.
template <typename... Values>
tvm::ffi::Any CallGlobal(const char* name, const Values&... values) {
  return Call(tvm::ffi::Function::GetGlobalRequired(name), values...);
}

// Wraps a function for TVM to call: its exceptions become error codes.
inline tvm::ffi::Function ForTvm(tvm::ffi::Function function) {
  using tvm::ffi::Function;
  auto call = [](void* self, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
    auto* object = const_cast<tvm::ffi::FunctionObj*>(
        static_cast<const tvm::ffi::FunctionObj*>(static_cast<Function*>(self)->get()));
    return object->safe_call(object, arguments, count, result);
  };
  return Function::FromExternC(new Function(std::move(function)), call,
                               [](void* self) { delete static_cast<Function*>(self); });
}

inline tvm::ffi::Module LoadModule(const std::string& path) {
  return CallGlobal("ffi.ModuleLoadFromFile", path).cast<tvm::ffi::Module>();
}

// Empty if the module has no such function.
inline tvm::ffi::Optional<tvm::ffi::Function> Member(const tvm::ffi::Module& module,
                                                     const char* name) {
  return CallGlobal("ffi.ModuleGetFunction", module, name, false)
      .cast<tvm::ffi::Optional<tvm::ffi::Function>>();
}

}  // namespace edgekit
