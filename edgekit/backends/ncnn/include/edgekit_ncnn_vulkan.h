// The GPU that runs regions through Vulkan: the same for all regions of a library, looked for at the
// first call of one. Where there is none, they run on the CPU, and say so.
#pragma once

#include <ncnn/net.h>
#include <ncnn/platform.h>
#if NCNN_VULKAN
#include <ncnn/gpu.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "edgekit_tell.h"

namespace edgekit {
namespace ncnn_net {

struct Gpu {
  int index;         // -1 for none
  std::string name;  // or the reason why there is none
};

inline void tell(const std::string& text) {
  if (!heard(text.c_str())) std::fprintf(stderr, "edgekit: %s\n", text.c_str());
}

inline void tell_cpu(const std::string& reason) {
  tell("warning: ncnn runs on the CPU: " + reason);
}

#if NCNN_VULKAN

// EDGEKIT_VULKAN_DEVICE takes the first device whose name holds this text.
inline Gpu look_for_gpu(bool software) {
  if (ncnn::create_gpu_instance() != 0) return {-1, "there is no Vulkan driver that works"};
  const char* wanted = std::getenv("EDGEKIT_VULKAN_DEVICE");
  const int count = ncnn::get_gpu_count(), preferred = ncnn::get_default_gpu_index();
  std::string reason = "no Vulkan driver has a device";
  if (wanted != nullptr && count > 0)
    reason = std::string("no device of Vulkan has ") + wanted + " in its name";
  for (int i = -1; i < count; ++i) {
    const int index = i < 0 ? preferred : i;
    if (index < 0 || index >= count) continue;
    const ncnn::GpuInfo& info = ncnn::get_gpu_info(index);
    const std::string name = info.device_name();
    if (wanted != nullptr && name.find(wanted) == std::string::npos) continue;
    if (info.type() == 3 && !software) {
      reason = "Vulkan has no GPU, only " + name + ", which is software";
      continue;
    }
    const ncnn::VulkanDevice* device = ncnn::get_gpu_device(index);
    if (device != nullptr && device->is_valid()) return {index, name};
    reason = "the Vulkan driver of " + name + " does not work";
  }
  return {-1, reason};
}

inline const Gpu& gpu(bool software) {
  static const Gpu found = look_for_gpu(software);
  return found;
}

inline void take_gpu(ncnn::Net& net, int index) {
  net.opt.use_vulkan_compute = true;
  net.set_vulkan_device(index);
}

// How many of a net's layers run on its GPU; those that only pass tensors on do not count.
inline std::string share_on_gpu(const ncnn::Net& net) {
  size_t on_gpu = 0, all = 0;
  for (const ncnn::Layer* layer : net.layers()) {
    if (layer->typeindex == ncnn::LayerType::Input || layer->typeindex == ncnn::LayerType::Split)
      continue;
    all += 1;
    on_gpu += layer->support_vulkan;
  }
  return (on_gpu == all ? "all" : std::to_string(on_gpu) + " of " + std::to_string(all)) +
         " layers";
}

#else

inline const Gpu& gpu(bool) {
  static const Gpu none{-1, "this ncnn was built without Vulkan"};
  return none;
}

inline void take_gpu(ncnn::Net&, int) {}

inline std::string share_on_gpu(const ncnn::Net&) { return "none"; }

#endif

}  // namespace ncnn_net
}  // namespace edgekit
