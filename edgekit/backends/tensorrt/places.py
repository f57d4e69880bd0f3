"""What compiles the runner on a device, and where that device has it."""

from __future__ import annotations

from edgekit.backends.base import DeviceBuild

DEVICE_BUILD = DeviceBuild(
    headers=("NvInfer.h", "NvInferVersion.h", "NvOnnxParser.h", "cuda_runtime_api.h"),
    folders=(
        *("/usr/include/*-linux-gnu", "/usr/include", "/usr/local/cuda/include"),
        *("/usr/local/cuda/targets/*/include", "/usr/local/TensorRT/include"),
    ),
    variable="TENSORRT_INCLUDE",
    install="install JetPack's headers on the device (sudo apt-get install "
    "libnvinfer-headers-dev libnvonnxparsers-dev, and the cuda-cudart-dev of its CUDA)",
    check="check that libnvinfer-headers-dev, libnvonnxparsers-dev and cuda-cudart-dev are all "
    "JetPack's",
)
