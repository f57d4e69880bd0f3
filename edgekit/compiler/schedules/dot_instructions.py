"""The instructions of dot_products.py for TVM: as loops, by which it finds where they fit, and as
the LLVM intrinsics that replace them."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.schedules.dot_products import DotProduct


@cache
def tensor_intrinsics(dot: DotProduct) -> tuple[str, str]:
    """Return TVM's names of the instruction and of its variant that begins with zeros."""
    name = f"edgekit_{dot.kind}_{dot.lanes}"
    TensorIntrin.register(name, _step(dot, None), _step(dot, _INSTRUCTIONS[dot.kind]))
    zeros = f"edgekit_zeros_{dot.pixels}_{dot.lanes}"
    TensorIntrin.register(zeros, _zeros(dot, wide=False), _zeros(dot, wide=True), override=True)
    return name, zeros


def _step(dot: DotProduct, instruction: Any) -> Any:
    """Return one group for every lane: as loops, or with the instruction."""
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        image = script.arg("a", _image(dot))
        weight = script.arg("b", script.buffer(dot.weights, "int8", offset_factor=1))
        sums = script.arg("c", _sums(dot))
        read, all_sums = (_whole(shape) for shape in (_image_shape(dot), _sums_shape(dot)))
        with script.sblock("root"):
            script.reads(sums[all_sums], image[read], weight[_whole(dot.weights)])
            script.writes(sums[all_sums])
            if instruction is None:
                _step_in_loops(dot, image, weight, sums)
            else:
                first = sums.vload(_first(dot), f"int32x{_width(dot)}")
                _store(dot, sums, instruction(dot, image, weight, first))
    return builder.get()


def _sums_shape(dot: DotProduct) -> tuple[int, ...]:
    return (dot.lanes,) if dot.pixels == 1 else (dot.pixels, dot.lanes)


def _image_shape(dot: DotProduct) -> tuple[int, ...]:
    return (dot.group,) if dot.pixels == 1 else (dot.pixels, dot.group)


def _image(dot: DotProduct) -> Any:
    """Return the image's buffer, in which each of several pixels may be anywhere."""
    apart = [tirx.Var("apart", "int32"), 1] if dot.pixels > 1 else None
    return script.buffer(_image_shape(dot), dot.image, strides=apart, offset_factor=1)


def _sums(dot: DotProduct) -> Any:
    return script.buffer(_sums_shape(dot), "int32", offset_factor=1, scope="local")


def _whole(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, extent) for extent in shape)


def _width(dot: DotProduct) -> int:
    return dot.pixels * dot.lanes


def _first(dot: DotProduct) -> list[int]:
    return [0] * len(_sums_shape(dot))


def _store(dot: DotProduct, sums: Any, value: Any) -> None:
    *before, last = _first(dot)
    script.buffer_store(sums, value, [*before, script.ramp(last, 1, _width(dot))])


def _step_in_loops(dot: DotProduct, image: Any, weight: Any, sums: Any) -> None:
    extents = (*_sums_shape(dot), *dot.places)
    with script.grid(*extents) as loops, script.sblock("update"):
        count = len(_sums_shape(dot))
        *pixel, i = (
            script.axis.spatial(extent, loop)
            for extent, loop in zip(extents[:count], loops[:count], strict=True)
        )
        k = [
            script.axis.reduce(extent, loop)
            for extent, loop in zip(dot.places, loops[count:], strict=True)
        ]
        neighbour = (*pixel, dot.place(*k))
        number = image[neighbour].astype("int32")
        product = number * weight[dot.weight(i, *k)].astype("int32")
        at = (*pixel, i)
        script.buffer_store(sums, sums[at] + product, [*at])


def _zeros(dot: DotProduct, *, wide: bool) -> Any:
    shape = _sums_shape(dot)
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        sums = script.arg("c", _sums(dot))
        with script.sblock("root"):
            script.reads()
            script.writes(sums[_whole(shape)])
            zero = tirx.const(0, "int32")
            if wide:
                _store(dot, sums, script.broadcast(zero, _width(dot)))
            else:
                with script.grid(*shape) as loops, script.sblock("init"):
                    at = [
                        script.axis.spatial(extent, loop)
                        for extent, loop in zip(
                            shape, loops if len(shape) > 1 else [loops], strict=True
                        )
                    ]
                    script.buffer_store(sums, zero, at)
    return builder.get()


def _repeated(dot: DotProduct, image: Any, first: int, count: int, dtype: str) -> Any:
    """Return some neighbours of the image in each lane, as a vector of `dtype`."""
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


def _smmla(dot: DotProduct, image: Any, weight: Any, sums: Any) -> Any:
    pixels = [image.vload([pixel, 0], f"int8x{dot.group}") for pixel in range(dot.pixels)]
    return _llvm(
        "llvm.aarch64.neon.smmla",
        sums,
        tirx.Shuffle(pixels, list(range(dot.pixels * dot.group))),
        weight.vload([0, 0], f"int8x{dot.lanes * dot.group}"),
    )


_INSTRUCTIONS = {"vnni": _vnni, "madd": _madd, "sdot": _sdot, "smull": _smull, "smmla": _smmla}


def _llvm(name: str, sums: Any, *operands: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(sums.ty), name, sums, *operands)
