"""Scheduled kernels as source and a list of launches, which a program starts itself.

TVM's own form of a GPU's kernel is a function of the host that sets up its launches in TVM's
runtime. Where every shape is known, that function only lists them, so they are read from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import transform as blocks
from tvm.tirx import transform

from edgekit.compiler.cuda.kernels import compile_cuda
from edgekit.compiler.gpu.arithmetic import Helpers, defined_on_gpu
from edgekit.compiler.gpu.code import ALIGNMENT, GpuCode, GpuKernel, Launch
from edgekit.compiler.gpu.language import LANGUAGES, Language
from edgekit.compiler.lowering import Own, code, loops
from edgekit.compiler.objects import PREFIX
from edgekit.compiler.rewriting import nodes_in
from edgekit.profiles.gpu import GpuLimits

ON_GPU = "edgekit.gpu"
"""The attribute of a kernel that runs on the GPU."""
_IS_KERNEL = "tirx.is_global_func"


class NotForGpuError(Exception):
    """The kernel, as it is scheduled, can't run on the GPU; the message says why."""


def gpu_code(functions: Mapping[str, Any], limits: GpuLimits, host: Any) -> GpuCode:
    """Generate code for scheduled kernels; NotForGpuError if one of them has no such form."""
    if not functions:
        return GpuCode()
    language = LANGUAGES[limits.language]
    target = tvm.target.Target(
        {
            "kind": language.kind,
            **({"arch": _arch(limits)} if limits.arch else {}),
            "max_threads_per_block": limits.threads,
            "max_shared_memory_per_block": max(limits.local_memory, 16 << 10),
            # Threads exchange numbers through the group's memory: not every driver has another way.
            "thread_warp_size": 1,
            "host": dict(host.export()),
        }
    )
    module = tvm.IRModule(
        {
            name: kernel.with_attr("global_symbol", PREFIX + name)
            for name, kernel in functions.items()
        }
    )
    module = transform.BindTarget(target)(module)
    helpers = Helpers(language)
    try:
        with target:
            module = ir.transform.Sequential(_LOOPS)(module)
            on_gpu = {
                variable: function
                for variable, function in module.functions_items()
                if _IS_KERNEL in function.attrs
            }
            device = ir.transform.Sequential([*_CODE, defined_on_gpu(helpers)])(
                tvm.IRModule(on_gpu)
            )
            built = tvm.get_global_func(f"target.build.{language.kind}")(device, target)
    except (RuntimeError, ValueError, TypeError) as error:
        raise NotForGpuError(str(error).strip().splitlines()[-1]) from error
    source = _with_plain_names(built.inspect_source(), device)
    _check_types(source, language, limits)
    kernels = {name: _kernel(module[name], limits) for name in functions}
    place = max(source.find(language.first_kernel), 0)
    return GpuCode(source[:place] + helpers.text + source[place:], kernels)


def compiled(code: GpuCode, limits: GpuLimits) -> GpuCode:
    """Return the code as a bundle holds it: OpenCL's is source, which drivers compile."""
    if limits.language == "opencl" or not code.kernels:
        return code
    return replace(code, language="cuda", image=compile_cuda(code.source, limits.arch))


def _arch(limits: GpuLimits) -> str:
    """Return the architecture as TVM takes it: it has no word for code for all newer ones."""
    return limits.arch.replace("compute_", "sm_")


def _with_plain_names(source: str, device: Any) -> str:
    """Replace names that the language does not accept: those of the model's tensors."""
    variables = {
        str(variable.name)
        for _, function in device.functions_items()
        for variable in nodes_in(function, ir.Var)
    }
    for name in sorted(variables, key=len, reverse=True):
        if not name.isidentifier() or not name.isascii():
            written = name.replace(".", "_")  # as TVM prints it
            source = source.replace(written, re.sub(r"\W", "_", written, flags=re.ASCII))
    return source


_LOOPS = loops(
    Own(
        sums=[blocks.LowerCrossThreadReduction()],
        opaque=[blocks.LiftThreadBinding()],
        compact=[blocks.UnifyThreadBinding()],
        vectors=[blocks.InjectVirtualThread()],
        checked=[
            transform.AnnotateEntryFunc(),
            blocks.ThreadSync("shared"),
            blocks.LowerThreadAllreduce(),
            transform.SplitHostDevice(),
        ],
    )
)
_CODE = code([transform.LowerWarpMemory(), transform.StmtSimplify()])


def _check_types(source: str, language: Language, limits: GpuLimits) -> None:
    for kind, has in (("double", limits.double), ("half", limits.half)):
        extension = language.extensions.get(kind, "")
        if not has and extension and extension in source:
            raise NotForGpuError(f"the device has no {extension}")


def _kernel(host: Any, limits: GpuLimits) -> GpuKernel:
    """Read the launches from the host's function."""
    places = {parameter: place for place, parameter in enumerate(host.params)}
    scratch: list[int] = []
    launches: list[Launch] = []

    def place_of(address: Any) -> int:
        given = address.args[0] if getattr(address, "op", None) == _DATA else address
        if given not in places:
            raise NotForGpuError("a launch gets more than tensors")
        return places[given]

    def read(statement: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for one in statement.seq:
                read(one)
        elif isinstance(statement, tirx.AllocBuffer):
            places[statement.buffer] = len(host.params) + len(scratch)
            scratch.append(-(-_bytes_of(statement.buffer) // ALIGNMENT) * ALIGNMENT)
        elif isinstance(statement, tirx.DeclBuffer):
            places[statement.buffer] = place_of(statement.data)
        elif isinstance(statement, tirx.AttrStmt):
            read(statement.body)
        elif isinstance(statement, tirx.Evaluate) and getattr(statement.value, "op", None) == _RUN:
            launches.append(_launch(statement.value, place_of))
        else:
            raise NotForGpuError(f"its host has a {type(statement).__name__}")

    read(host.body)
    for launch in launches:
        if math.prod(launch.threads) > limits.threads:
            raise NotForGpuError(f"{launch.function} has too many threads in a group")
    return GpuKernel(tuple(launches), tuple(scratch))


_DATA, _RUN = ir.Op.get("tirx.buffer_data"), ir.Op.get("tirx.call_ffi_kernel")


def _launch(call: Any, place_of: Callable[[Any], int]) -> Launch:
    tags = [str(tag) for tag in call.attrs.launch_params]
    name, *given = call.args
    operands, extents = given[: len(given) - len(tags)], given[len(given) - len(tags) :]
    sizes = {f"{word}.{axis}": 1 for word in ("blockIdx", "threadIdx") for axis in "xyz"}
    for tag, extent in zip(tags, extents, strict=True):
        if tag not in sizes or not isinstance(extent, tirx.IntImm):
            raise NotForGpuError(f"its launch depends on {tag}")
        sizes[tag] = int(extent)
    x, y, z, *threads = sizes.values()
    return Launch(
        str(name.value),
        (x, y, z),
        (threads[0], threads[1], threads[2]),
        tuple(map(place_of, operands)),
    )


def _bytes_of(buffer: Any) -> int:
    dtype = tvm_ffi.dtype(str(buffer.dtype))
    width = max(int(dtype.bits) * int(dtype.lanes) // 8, 1)
    return math.prod(int(extent) for extent in buffer.shape) * width
