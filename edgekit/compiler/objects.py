"""Kernels as plain C functions in an object file: pointers in, a status out.

TVM's own form of a kernel takes tensors of its runtime and checks them at each call. These kernels
take the addresses of the tensors alone, aligned to 64 bytes, and call nothing of TVM's runtime but
`TVMBackendParallelLaunch` and the workspace of a parallel loop, which their library defines
(aot/native/source).
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import transform as blocks
from tvm.tirx import transform

from edgekit.base.errors import BuildError
from edgekit.base.metrics import usable_cores
from edgekit.compiler.lowering import Own, code, loops
from edgekit.compiler.passes.defined_arithmetic import defined_arithmetic
from edgekit.compiler.passes.finish import compare_booleans, keep_on_stack, take_maximum
from edgekit.compiler.passes.propagate_nan import propagate_nan
from edgekit.compiler.passes.vector_math import vector_math
from edgekit.compiler.passes.whole_vectors import whole_vectors
from edgekit.profiles.architecture import architecture_of

ALIGNMENT = 64
"""The alignment of every address that a kernel gets, as TVM's code generator assumes it."""
PREFIX = "ek_"
"""The first letters of each kernel's symbol."""
_SMALLEST_PART = 8
_MOST_PARTS = 8
"""The kernels of a part that is worth a thread, and how many parts there are at most."""

_RUNTIME = re.compile(rb"(?<=\0)_*TVM(?:FFI|Backend)\w+(?=\0)")
_OWN = frozenset(
    f"__TVMBackend{name}" for name in ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
)
"""The functions of TVM's runtime that a program defines itself."""


@dataclass(frozen=True)
class Scratch:
    """The memory that a kernel needs besides its operands."""

    buffers: tuple[int, ...] = ()
    """Bytes of each buffer that the caller passes, after the operands."""
    each_thread: int = 0
    """Bytes that each thread of a parallel loop takes."""


def compile_kernels(
    functions: Mapping[str, Any], target: Any
) -> tuple[tuple[bytes, ...], Mapping[str, Scratch]]:
    """Compile scheduled kernels; return object files, and what memory each kernel needs.

    The parts are the same on every host, so that a model gives the same files everywhere. TVM and
    LLVM let other threads run while they work.
    """
    target = _for_halves(functions, target)
    names = list(functions)
    parts = min(-(-len(names) // _SMALLEST_PART), _MOST_PARTS)
    groups = [{name: functions[name] for name in names[first::parts]} for first in range(parts)]
    with ThreadPoolExecutor(usable_cores()) as threads:
        compiled = list(threads.map(partial(_compile_part, target=target), groups))
    scratch = {name: one for _, part in compiled for name, one in part.items()}
    return tuple(part for part, _ in compiled), scratch


def _compile_part(functions: Mapping[str, Any], target: Any) -> tuple[bytes, dict[str, Scratch]]:
    scratch: dict[str, Scratch] = {}

    def plain(name: str, kernel: Any) -> Any:
        function, scratch[name] = _plain(name, kernel)
        return function

    module = tvm.IRModule(
        {name: kernel.with_attr("global_symbol", name) for name, kernel in functions.items()}
    )
    module = transform.BindTarget(target.with_host(target))(module)
    with target:
        module = ir.transform.Sequential(_LOOPS)(module)
        module = tvm.IRModule(
            {
                variable.name_hint: plain(variable.name_hint, kernel)
                for variable, kernel in module.functions_items()
            }
        )
        module = ir.transform.Sequential(_CODE)(module)
        built = tvm.get_global_func("target.build.llvm")(module, target)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.o"
        built.write_to_file(str(file), "o")
        machine_code = file.read_bytes()
    left = sorted({name.decode() for name in _RUNTIME.findall(machine_code)} - _OWN)
    if left:
        raise BuildError(
            f"a kernel calls {', '.join(left)}, which only TVM's runtime has",
            hint="this is a fault of edgekit: please report it with the model",
        )
    return machine_code, scratch


def _for_halves(functions: Mapping[str, Any], target: Any) -> Any:
    """Return the target without vectors if a kernel for WebAssembly has numbers of float16: LLVM
    never ends where it selects instructions for vectors of them."""
    known = architecture_of(str(target.attrs.get("mtriple", "")))
    if known is None or not known.in_engine:
        return target
    if not any("float16" in kernel.script() for kernel in functions.values()):
        return target
    settings = dict(target.export())
    settings["mattr"] = [word for word in settings.get("mattr", ()) if word != "+simd128"]
    return tvm.target.Target(settings)


_LOOPS = loops(
    Own(
        first=[whole_vectors()],
        vectors=[blocks.InjectDoubleBuffer()],
        checked=[keep_on_stack()],
    )
)
_CODE = code(
    [take_maximum(), vector_math(), transform.LowerTVMBuiltin()],
    [propagate_nan(), defined_arithmetic(), compare_booleans()],
)


def _plain(name: str, kernel: Any) -> tuple[Any, Scratch]:
    """Return the kernel with addresses for parameters, and the memory that it needs."""
    declared: list[Any] = []
    addresses: list[Any] = []

    def address_of(buffer: Any, label: str) -> Any:
        address = ir.Var(label, ir.PointerType(ir.PrimType(str(buffer.ty.dtype))))
        offset = getattr(buffer.ty, "elem_offset", None)
        if isinstance(offset, ir.Var):
            declared.append(tirx.Bind(offset, tirx.const(0, str(offset.ty))))
        addresses.append(address)
        return address

    for parameter in kernel.params:
        address = address_of(parameter, f"{parameter.name}_at")
        declared.append(tirx.DeclBuffer(parameter, data=address))
    shared, own = _allocations(kernel.body)

    def hoisted(allocation: Any) -> Any:
        if not any(allocation.same_as(other) for other in shared):
            return allocation
        return tirx.DeclBuffer(
            allocation.buffer, data=address_of(allocation.buffer, f"scratch_{len(addresses)}")
        )

    body = tvm_ffi.structural_map(kernel.body, [(tirx.AllocBuffer, hoisted)])
    zero = tirx.const(0, "int32")
    body = tirx.SeqStmt([*declared, body, tirx.Return(zero)])
    for address in addresses:
        aligned = tirx.const(ALIGNMENT, "int32")
        body = tirx.AttrStmt(address, "storage_alignment", aligned, body)
    # The code generator of a parallel loop's workspace asks for these.
    body = tirx.AttrStmt("default", "device_id", zero, body)
    body = tirx.AttrStmt("default", "device_type", tirx.const(1, "int32"), body)
    made = tirx.PrimFunc(addresses, body, ir.PrimType("int32"))
    for key in ("target", "tirx.noalias"):
        if kernel.attrs is not None and key in kernel.attrs:
            made = made.with_attr(key, kernel.attrs[key])
    scratch = Scratch(
        tuple(padded(_bytes_of(one.buffer)) for one in shared),
        sum(padded(_bytes_of(one.buffer)) for one in own),
    )
    return made.with_attr("global_symbol", PREFIX + name), scratch


def _allocations(body: Any) -> tuple[list[Any], list[Any]]:
    """Return the allocations of a kernel outside of its parallel loops, and inside of them. Those
    that stay on the stack are no part of either."""
    inside: list[Any] = []
    everything: list[Any] = []

    def note(found: list[Any]) -> Any:
        def take(allocation: Any) -> None:
            if "disable_lower_builtin" not in (allocation.annotations or {}):
                found.append(allocation)

        return take

    def enter(loop: Any) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            tvm_ffi.structural_walk(loop.body, (tirx.AllocBuffer, note(inside)))

    tvm_ffi.structural_walk(body, (tirx.For, enter))
    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, note(everything)))
    outside = [one for one in everything if not any(one.same_as(other) for other in inside)]
    return outside, inside


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bytes_of(buffer: Any) -> int:
    dtype = tvm_ffi.dtype(str(buffer.dtype))
    width = max(int(dtype.bits) * int(dtype.lanes) // 8, 1)
    return math.prod(int(extent) for extent in buffer.shape) * width
