"""The instructions of dot_products.py, told to TVM: in loops, by which it finds where they fit, and
as what LLVM calls them."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from edgekit.schedules.dot_products import DotProduct


@cache
def tensor_intrinsics(dot: DotProduct) -> tuple[str, str]:
    """Names under which TVM finds the instruction, and that which begins with zeros."""
    name = f"edgekit_{dot.kind}_{dot.lanes}"
    TensorIntrin.register(name, _step(dot, None), _step(dot, _INSTRUCTIONS[dot.kind]))
    zeros = f"edgekit_zeros_{dot.lanes}"
    TensorIntrin.register(zeros, _zeros(dot, wide=False), _zeros(dot, wide=True), override=True)
    return name, zeros


def _step(dot: DotProduct, instruction: Any) -> Any:
    """One group for every lane: told in loops, or with the instruction."""
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        image = script.arg("a", script.buffer((dot.group,), dot.image, offset_factor=1))
        weight = script.arg("b", script.buffer(dot.weights, "int8", offset_factor=1))
        sums = script.arg("c", script.buffer((dot.lanes,), "int32", offset_factor=1, scope="local"))
        whole = tuple(slice(0, extent) for extent in dot.weights)
        with script.sblock("root"):
            script.reads(sums[0 : dot.lanes], image[0 : dot.group], weight[whole])
            script.writes(sums[0 : dot.lanes])
            if instruction is None:
                _step_in_loops(dot, image, weight, sums)
            else:
                first = sums.vload([0], f"int32x{dot.lanes}")
                script.buffer_store(sums, instruction(dot, image, weight, first), [_lanes(dot)])
    return builder.get()


def _step_in_loops(dot: DotProduct, image: Any, weight: Any, sums: Any) -> None:
    with script.grid(dot.lanes, *dot.places) as (lane, *loops), script.sblock("update"):
        i = script.axis.spatial(dot.lanes, lane)
        k = [
            script.axis.reduce(extent, loop) for extent, loop in zip(dot.places, loops, strict=True)
        ]
        number = image[dot.place(*k)].astype("int32")
        product = number * weight[dot.weight(i, *k)].astype("int32")
        script.buffer_store(sums, sums[i] + product, [i])


def _zeros(dot: DotProduct, *, wide: bool) -> Any:
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        sums = script.arg("c", script.buffer((dot.lanes,), "int32", offset_factor=1, scope="local"))
        with script.sblock("root"):
            script.reads()
            script.writes(sums[0 : dot.lanes])
            zero = tirx.const(0, "int32")
            if wide:
                script.buffer_store(sums, script.broadcast(zero, dot.lanes), [_lanes(dot)])
            else:
                with script.serial(0, dot.lanes) as lane, script.sblock("init"):
                    i = script.axis.spatial(dot.lanes, lane)
                    script.buffer_store(sums, zero, [i])
    return builder.get()


def _lanes(dot: DotProduct) -> Any:
    return script.ramp(0, 1, dot.lanes)


def _repeated(dot: DotProduct, image: Any, first: int, count: int, dtype: str) -> Any:
    """Some neighbours of the image in each lane, as a vector of `dtype`."""
    bits = count * int(tvm_ffi.dtype(dot.image).bits)
    group = tirx.reinterpret(f"int{bits}", image.vload([first], f"{dot.image}x{count}"))
    return tirx.reinterpret(dtype, script.broadcast(group, dot.lanes))


def _vnni(dot: DotProduct, image: Any, weight: Any, sums: Any) -> Any:
    total = 4 * dot.lanes
    return _llvm(
        f"llvm.x86.avx512.vpdpbusd.{8 * total}",
        sums,
        _repeated(dot, image, 0, 4, f"uint8x{total}"),
        weight.vload([0, 0], f"int8x{total}"),
    )


_MADD = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


def _madd(dot: DotProduct, image: Any, weight: Any, sums: Any) -> Any:
    total = 2 * dot.lanes
    products = tirx.call_llvm_pure_intrin(
        f"int32x{dot.lanes}",
        _MADD[dot.lanes],
        _repeated(dot, image, 0, 2, f"int16x{total}"),
        tirx.Cast(f"int16x{total}", weight.vload([0, 0], f"int8x{total}")),
    )
    return sums + products


def _sdot(dot: DotProduct, image: Any, weight: Any, sums: Any) -> Any:
    return _llvm(
        "llvm.aarch64.neon.sdot",
        sums,
        _repeated(dot, image, 0, 4, "int8x16"),
        weight.vload([0, 0], "int8x16"),
    )


def _smull(dot: DotProduct, image: Any, weight: Any, sums: Any) -> Any:
    one, other = (
        tirx.call_llvm_pure_intrin(
            "int16x8",
            "llvm.aarch64.neon.smull",
            _repeated(dot, image, 2 * run, 2, "int8x8"),
            weight.vload([run, 0, 0], "int8x8"),
        )
        for run in range(2)
    )
    pairs = tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp", one + other)
    return sums + pairs


_INSTRUCTIONS = {"vnni": _vnni, "madd": _madd, "sdot": _sdot, "smull": _smull}


def _llvm(name: str, sums: Any, *operands: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(sums.ty), name, sums, *operands)
