"""The C++ of a region: its ONNX as bytes of the library, and the runner with its settings."""

from __future__ import annotations

from edgekit.backends.base import GeneratedRegion, Options, Region
from edgekit.backends.source import region_source
from edgekit.base.errors import ProfileError
from edgekit.base.quoting import c_string

_MIB = 1 << 20


def generate_region(region: Region, options: Options) -> GeneratedRegion:
    from edgekit.backends.tensorrt.graph import onnx_of

    settings = ", ".join(settings_of(options))
    tensors = (*region.inputs, *region.outputs)
    sizes = ", ".join(str(tensor.nbytes) for tensor in tensors)
    longer = ", ".join("1" if tensor.dtype == "int64" else "0" for tensor in tensors)
    model = onnx_of(region, half=options["precision"] == "fp16")
    blobs = {"model": model.SerializeToString(deterministic=True)}
    source = f"""\
class Region : public edgekit::tensorrt::Runner {{
 public:
  Region()
      : Runner({c_string(region.symbol)}, model, {{{settings}}}, {len(region.inputs)},
               {{{sizes}}}, {{{longer}}}) {{}}
}};
"""
    whole = region_source(region, ("edgekit_tensorrt.h",), source, "Region", blobs)
    more = (
        f"\nEDGEKIT_REGION_ON_GPU({region.symbol}, Region, inputs, outputs)\n"
        f"EDGEKIT_COPIED({region.symbol}, Region)\n"
    )
    return GeneratedRegion(region.symbol, region.backend, whole + more, blobs)


def settings_of(options: Options) -> tuple[str, ...]:
    """Return the settings as C++ literals, in the order of edgekit_tensorrt_build.h."""
    precision, core = str(options["precision"]), int(options["dla_core"])
    workspace = int(options["workspace_mb"])
    if workspace < 1:
        raise ProfileError(
            f"workspace_mb of [offload.tensorrt] can't be {workspace}",
            hint="it is in MiB: 256, say",
        )
    if core >= 0 and precision not in ("fp16", "int8"):
        raise ProfileError(
            f"a deep learning accelerator does not compute in {precision}",
            hint='set precision = "fp16" in [offload.tensorrt], or dla_core = -1 for the GPU',
        )
    level = int(options["builder_level"])
    return (c_string(precision), f"{workspace * _MIB}ll", str(core), str(level))
