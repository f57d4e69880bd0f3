"""Every operator with a rule, along every dimension: the same numbers, with garbage as padding."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from support.varying import compared

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import Range

N, M = Range(3, 11, "n"), Range(3, 11, "n")
RANDOM = np.random.default_rng(3)


def graph(inputs: str, outputs: str, body: str, opset: int = 18):
    """Return a model from ONNX's text; `outputs` are names with types, whose shapes are open."""
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> main ({inputs}) => ({outputs}) {{ {body} }}'
    )


def at(shape: tuple[int, ...], *axes: int) -> tuple[int | Range, ...]:
    return tuple(N if i in axes else size for i, size in enumerate(shape))


def declared(name: str, shape: tuple[int | Range, ...], dtype: str = "float") -> str:
    extents = ",".join(one.name if isinstance(one, Range) else str(one) for one in shape)
    return f"{dtype}[{extents}] {name}" if shape else f"{dtype} {name}"


def check(body: str, outputs: str = "float y", *, opset: int = 18, below: int = 3, **shapes):
    """Compare a body whose inputs have these shapes; `x=int64(...)` gives another type."""
    types, ranges = [], {}
    for name, shape in shapes.items():
        dtype, shape = shape if isinstance(shape[0], str) else ("float", shape)
        types.append(declared(name, shape, dtype))
        ranges[name] = shape
    return compared(graph(", ".join(types), outputs, body, opset), ranges, below=below)


REDUCTIONS = ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("operator", REDUCTIONS)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_reductions(operator, axes):
    text = ",".join(map(str, axes))
    for varying in [(0,), (1,), (0, 2)]:
        check(
            f"a = Constant<value_ints=[{text}]>() y = Reduce{operator}<keepdims=0>(x, a)",
            x=at((4, 5, 6), *varying),
        )


def test_reductions_of_whole_numbers_and_of_everything():
    for operator in ("Max", "Min", "Sum", "Prod", "Mean"):
        check(f"y = Reduce{operator}(x)", "int32 y", below=9, x=("int32", at((4, 5), 0, 1)))
    check("e = Exp(x) y = ReduceLogSum(e)", x=at((4, 5), 1))


@pytest.mark.parametrize("varying", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_an_axis(axis, varying):
    shape = at((4, 5, 3), *varying)
    for operator in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        check(f"y = {operator}<axis={axis}>(x)", x=shape)
    for operator in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            body = f"y = {operator}<axis={axis}, select_last_index={last}, keepdims=0>(x)"
            check(body, "int64 y", x=shape)
            check(
                f"k = Less(x, x) i = Cast<to=6>(k) {body.replace('(x)', '(i)')}", "int64 y", x=shape
            )
    for reverse, exclusive in ((0, 0), (1, 0), (1, 1), (0, 1)):
        check(
            f"a = Constant<value_int={axis}>() "
            f"y = CumSum<reverse={reverse}, exclusive={exclusive}>(x, a)",
            x=shape,
        )


@pytest.mark.parametrize("largest", [0, 1])
def test_the_largest(largest):
    body = f"k = Constant<value_ints=[3]>() v, y = TopK<axis=1, largest={largest}>(x, k)"
    check(body, "float v, int64 y", x=at((2, 5), 1))
    check(body, "float v, int64 y", x=at((2, 5), 0))
    counted = (
        "s = Shape(x) o = Constant<value_ints=[1]>() m = Gather(s, o) h = "
        "Constant<value_ints=[7]>() "
        f"k = Min(m, h) v, y = TopK<axis=1, largest={largest}>(x, k)"
    )
    check(counted, "float v, int64 y", x=at((2, 5), 1))


@pytest.mark.parametrize("opset", [17, 18])
def test_normalizations(opset):
    for varying in [(0,), (1,), (0, 1)]:
        check(
            "y = LayerNormalization<axis=-1>(x, s, b)",
            opset=opset, x=at((2, 5, 4), *varying), s=(4,), b=(4,),
        )  # fmt: skip
    check("y = LayerNormalization<axis=1>(x, s)", opset=opset, x=at((2, 5), 1), s=at((5,), 0))
    for varying in [(0,), (2,), (2, 3)]:
        check("y = InstanceNormalization(x, s, b)", x=at((2, 3, 5, 4), *varying), s=(3,), b=(3,))
        check("y = MeanVarianceNormalization(x)", x=at((2, 3, 5, 4), *varying))
        check("y = LRN<size=3>(x)", x=at((2, 3, 5, 4), *varying))
        check(
            "v = Mul(b, b) y = BatchNormalization(x, s, b, b, v)",
            x=at((2, 3, 5, 4), *varying), s=(3,), b=(3,),
        )  # fmt: skip
    check("y = GroupNormalization<num_groups=2>(x, s, s)", opset=21, x=at((2, 4, 5), 2), s=(4,))


def test_products():
    for a, b in [((0,), ()), ((1,), (0,)), ((0, 1), (0, 1)), ((), (1,))]:
        check("y = MatMul(a, b)", a=at((4, 4), *a), b=at((4, 4), *b))
    for a, b in [
        ((0,), (0,)),
        ((2,), (1,)),
        ((0, 2), (0, 1)),
        ((1,), (2,)),
        ((0, 1, 2), (0, 1, 2)),
    ]:
        check("y = MatMul(a, b)", a=at((4, 4, 4), *a), b=at((4, 4, 4), *b))
    check("y = MatMul(a, b)", a=at((2, 1, 3, 4), 3), b=at((5, 4, 6), 1))
    check("y = MatMul(a, b)", a=at((4,), 0), b=at((4, 5), 0))
    check("y = MatMul(a, b)", a=at((2, 3, 4), 2), b=at((4,), 0))
    check("y = Gemm(a, b, c)", a=at((2, 4), 1), b=at((4, 3), 0), c=(3,))
    check("y = Gemm<transA=1>(a, b, c)", a=at((4, 2), 0, 1), b=at((4, 3), 0), c=at((2, 3), 0))
    check("y = Gemm<transB=1, alpha=0.5>(a, b)", a=at((2, 4), 0, 1), b=at((3, 4), 1, 0))
    for equation in ("bnd,bmd->bnm", "nd,nd->n", "bnd,bme->de", "bn,n"):
        pairs = equation.split("->")[0].split(",")
        shapes = [tuple(N if x in "nm" else 4 for x in term) for term in pairs]
        check(f'y = Einsum<equation="{equation}">(a, b)', a=shapes[0], b=shapes[1])
    check(
        "y = MatMulInteger(a, b)", "int32 y", a=("uint8", at((4, 4), 1)), b=("uint8", at((4, 4), 0))
    )
    check(
        "z = Constant<value=uint8 {3}>() y = MatMulInteger(a, b, z, z)",
        "int32 y", a=("uint8", at((4, 4), 1)), b=("uint8", at((4, 4), 0)), below=200,
    )  # fmt: skip


WINDOWS = [
    "", "strides=[2]", "pads=[1,1]", "pads=[2,0], strides=[2]", "pads=[0,2], strides=[3]",
    'auto_pad="SAME_UPPER"', 'auto_pad="SAME_LOWER", strides=[2]',
    'auto_pad="SAME_UPPER", strides=[3]', 'auto_pad="VALID", strides=[2]',
]  # fmt: skip


@pytest.mark.parametrize("windows", WINDOWS)
def test_windows(windows):
    more = f", {windows}" if windows else ""
    for varying in [(2,), (0,), (0, 2)]:
        shape = at((2, 3, 8), *varying)
        check(f"y = Conv<kernel_shape=[3]{more}>(x, w, b)", x=shape, w=(4, 3, 3), b=(4,))
        check(f"y = MaxPool<kernel_shape=[3]{more}>(x)", x=shape)
        check(f"y = AveragePool<kernel_shape=[3]{more}>(x)", x=shape)
        check(f"y = LpPool<kernel_shape=[3]{more}>(x)", x=shape)
        check(f"y = AveragePool<kernel_shape=[3], count_include_pad=1{more}>(x)", x=shape)
        check(f"y = ConvTranspose<kernel_shape=[3]{more}>(x, w)", x=shape, w=(3, 2, 3))
    if windows in ("", "strides=[2]", "pads=[1,1]"):
        check(
            f"y = Conv<kernel_shape=[2], dilations=[2]{more}>(x, w)",
            x=at((2, 3, 8), 2),
            w=(4, 3, 2),
        )
        check(f"y = MaxPool<kernel_shape=[2], ceil_mode=1{more}>(x)", x=at((2, 3, 8), 2), opset=22)
        check(
            f"y = AveragePool<kernel_shape=[2], ceil_mode=1{more}>(x)", x=at((2, 3, 8), 2), opset=22
        )


def test_windows_in_two_dimensions():
    for varying in [(2,), (3,), (2, 3)]:
        shape = at((1, 2, 8, 7), *varying)
        check("y = Conv<pads=[1,1,1,1], strides=[2,2], group=2>(x, w)", x=shape, w=(4, 1, 3, 3))
        check("y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", x=shape)
        check("y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", x=shape)
        check(
            "y = ConvTranspose<strides=[2,2], output_padding=[1,1]>(x, w)", x=shape, w=(2, 3, 3, 3)
        )
        for operator in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            check(f"y = {operator}(x)", x=shape)
    check(
        "y = ConvInteger<pads=[1,1]>(x, w)",
        "int32 y",
        x=("uint8", at((1, 2, 8), 2)),
        w=("uint8", (3, 2, 3)),
    )
    check(
        "z = Constant<value=uint8 {7}>() y = ConvInteger<pads=[1,1]>(x, w, z)",
        "int32 y", x=("uint8", at((1, 2, 8), 2)), w=("uint8", (3, 2, 3)), below=200,
    )  # fmt: skip


RESHAPES = [
    ((2, N, 6), "[0, 0, 2, "
    "3]"), ((2, N, 6), "[-1, 6]"), ((2, N, 6), "[2, -1]"), ((2, N, 6), "[-1]"),
    ((N, 4, 6), "[-1, 24]"), ((N, 4, 6), "[-1]"), ((2, 4, N), "[2, -1]"), ((2, 4, N), "[-1]"),
    ((N, 2, N), "[-1, 2]"), ((1, N, 6), "[-1, 1, 2, 3]"), ((4, 3, N), "[2, 6, -1]"),
    ((3, 4, N), "[-1, 4]"), ((1, 1, N, 1), "[-1]"), ((N, 6), "[-1, 2]"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "target"), RESHAPES)
def test_reshapes(shape, target):
    body = f"s = Constant<value_ints={target}>() r = Reshape(x, s) y = Relu(r)"
    check(body, x=shape)
    check(f"{body} t = Shape(x) z = Reshape(y, t)", "float y, float z", x=shape)


def test_shapes():
    for axis in (0, 1, 2, 3):
        for varying in [(0,), (1,), (2,), (0, 2)]:
            check(f"y = Flatten<axis={axis}>(x)", x=at((2, 5, 3), *varying))
    for varying in [(0,), (1,), (0, 2)]:
        check("y = Transpose<perm=[2,0,1]>(x)", x=at((2, 5, 3), *varying))
        check("a = Constant<value_ints=[1,-1]>() y = Unsqueeze(x, a)", x=at((2, 5, 3), *varying))
        check("a = Constant<value_ints=[1,2,3]>() y = Tile(x, a)", x=at((2, 5, 3), *varying))
        check("y = Trilu<upper=0>(x)", x=at((3, 5, 5), *varying))
        check("y = EyeLike<k=1>(x)", x=at((5, 5), *(a for a in varying if a < 2)))
    check("a = Constant<value_ints=[0,2]>() y = Squeeze(x, a)", x=(1, N, 1, 3))
    check("y = DepthToSpace<blocksize=2>(x)", x=at((1, 8, 3, 4), 2, 3))
    check(
        "p = Constant<value_ints=[1,1,2,2]>() t = Tile(x, p) y = SpaceToDepth<blocksize=2>(t)",
        x=(1, 2, N, 4),
    )
    check(
        "d = Constant<value_int=4>() v = Constant<value_floats=[0.0,1.0]>() y = OneHot(x, d, v)",
        x=("int64", (2, N)),
    )
    check("s = Shape(x) y = ConstantOfShape(s)", x=(2, N))
    check(
        "o = Constant<value_int=1>() s = Shape(x) z = Constant<value_int=0>() n "
        "= Gather(s, o) y = Range(z, n, o)",
        "int64 y",
        x=(2, N),
    )
    check(
        "o = Constant<value_int=1>() s = Shape(x) z = Constant<value_int=7>() n = Gather(s, o) "
        "e = Add(n, z) y = Range(n, e, o)",
        "int64 y", x=(2, N),
    )  # fmt: skip
    check("s = Shape(x) y = Expand(z, s)", x=(2, N, 3), z=(1, 3))
    check("s = Shape(x) y = Expand(z, s)", x=(2, N, 3), z=(N, 1))
    check("t = Shape(x) f = Cast<to=1>(t) y = Mul(f, z)", x=(2, N), z=(2,))
    check("t = Size(x) f = Cast<to=1>(t) y = Div(x, f)", x=(2, N))


SLICES = [
    (0, 2, 1),
    (1, 100, 1),
    (-2, 100, 1),
    (0, -1, 1),
    (-1, -100, -1),
    (1, 100, 2),
    (-1, -100, -2),
    (2, 1, 1),
    (-3, -1, 1),
]


@pytest.mark.parametrize(("start", "end", "stride"), SLICES)
def test_slices(start, end, stride):
    body = (
        f"s = Constant<value_ints=[{start}]>() e = Constant<value_ints=[{end}]>() "
        f"a = Constant<value_ints=[1]>() t = Constant<value_ints=[{stride}]>() "
        "y = Slice(x, s, e, a, t)"
    )
    check(body, x=(2, N, 3))
    check(body, x=(N, 5, 3))


def test_parts():
    for shape in [(2, N), (N, 2), (N, N)]:
        check("y = Concat<axis=1>(a, b, a)", a=shape, b=shape)
        check("y = Concat<axis=0>(a, b, a)", a=shape, b=shape)
    check("y = Concat<axis=1>(a, b, c)", a=(2, 3), b=(2, N), c=(2, 1))
    check("t = Concat<axis=1>(a, b, b) u = Relu(t) y = ReduceSum(u)", a=(2, N), b=(2, 2))
    check(
        "s = Constant<value_ints=[1,2]>() y, z = Split<axis=1>(x, s)", "float y, float z", x=(N, 3)
    )
    check(
        "p = Constant<value_ints=[1,2]>() t = Tile(x, p) y, z = Split<axis=1, num_outputs=2>(t)",
        "float y, float z",
        x=(2, N),
    )
    check("y, z = Split<axis=1, num_outputs=2>(x)", "float y, float z", x=(2, N))
    check(
        "p = Constant<value_ints=[0]>() e = Constant<value_ints=[1]>() s = Shape<start=1>(x) "
        "y = Slice(t, p, s, e)", x=(2, N), t=(2, 11),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", ["[0,2,0,1]", "[1,0,1,0]", "[0,-1,0,2]", "[0,2,0,-1]"])
def test_pads(mode, pads):
    if mode != "constant" and "-" in pads:  # onnxruntime cuts and continues in another order.
        return
    for shape in [(5, N), (N, 5), (N, N)]:
        body = f'p = Constant<value_ints={pads}>() y = Pad<mode="{mode}">(x, p)'
        check(body, opset=19, x=shape)
    if mode == "constant":
        body = f"p = Constant<value_ints={pads}>() v = Constant<value_float=2.5>() y = Pad(x, p, v)"
        check(body, opset=19, x=(5, N))


def test_places():
    for shape in [(N, 4), (4, N)]:
        for axis in (0, 1):
            for places in ("[0, 2]", "[-1, 1]", "[-2]"):
                check(f"i = Constant<value_ints={places}>() y = Gather<axis={axis}>(x, i)", x=shape)
            check(f"y = Gather<axis={axis}>(x, i)", x=shape, i=("int64", (2, N)))
            check(f"y = Gather<axis={axis}>(x, i)", x=shape, i=("int32", (N,)))
            check(
                f"o = Constant<value_int=-3>() j = Add(i, o) y = Gather<axis={axis}>(x, j)",
                x=shape,
                i=("int64", (2, N)),
            )
            check(f"y = GatherElements<axis={axis}>(x, i)", x=shape, i=("int64", shape))
            check(
                f"o = Constant<value_int=-3>() j = Add(i, o) y = GatherElements<axis={axis}>(x, j)",
                x=shape,
                i=("int64", shape),
            )
            check(
                f'y = ScatterElements<axis={axis}, reduction="add">(x, i, u)',
                x=shape,
                i=("int64", shape),
                u=shape,
            )
        check("y = GatherND(x, i)", x=shape, i=("int64", (N, 2)))
        check(
            "o = Constant<value_int=-3>() j = Add(i, o) y = GatherND(x, j)",
            x=shape,
            i=("int64", (N, 1)),
        )
        check('y = ScatterND<reduction="add">(x, i, u)', x=shape, i=("int64", (N, 2)), u=(N,))
        check(
            'y = ScatterND<reduction="add">(x, i, u)',
            x=shape,
            i=("int64", (2, 1)),
            u=(2, *shape[1:]),
        )
    check("y = GatherND<batch_dims=1>(x, i)", x=(N, 4), i=("int64", (N, 1)))
    check("y = ReverseSequence(x, l)", x=(4, N, 2), l=("int64", (N,)), below=3)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers(direction):
    count = 2 if direction == "bidirectional" else 1
    for operator, gates, outputs in [
        ("LSTM", 4, "y, h, c"),
        ("GRU", 3, "y, h"),
        ("RNN", 1, "y, h"),
    ]:
        for shape in [(N, 2, 3), (5, N, 3), (N, N, 3)]:
            for asked in (outputs, "y", ", h"):
                check(
                    f'{asked} = {operator}<hidden_size=4, direction="{direction}">(x, w, r)',
                    ", "
                    "".join(f"float {name}" for name in asked.replace(" ", "").split(",") if name),
                    x=shape, w=(count, gates * 4, 3), r=(count, gates * 4, 4),
                )  # fmt: skip


def test_quantised_values():
    for varying in [(0,), (1,), (0, 1)]:
        check(
            "s = Constant<value_float=0.1>() z = Constant<value=uint8 {3}>() q = "
            "QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
            x=at((4, 5), *varying),
        )
        check(
            "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)",
            x=at((4, 5), *varying),
        )
    check(
        "s = Constant<value_float=0.1>() z = Constant<value=uint8 {3}>() "
        "y = QLinearMatMul(a, s, z, b, s, z, s, z)",
        "uint8 y", a=("uint8", (2, N)), b=("uint8", (N, 3)),
    )  # fmt: skip
    check(
        "s = Constant<value_float=0.1>() z = Constant<value=uint8 {3}>() "
        "y = QLinearConv<pads=[1,1]>(x, s, z, w, s, z, s, z)",
        "uint8 y", x=("uint8", (1, 2, N)), w=("uint8", (3, 2, 3)),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    "places", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"]
)
def test_resizing(mode, places):
    how = f'mode="{mode}", coordinate_transformation_mode="{places}"'
    if mode == "nearest":
        how += ', nearest_mode="floor"'
    for shape in [(1, 2, N, 5), (1, 2, N, N)]:
        if places in ("asymmetric", "half_pixel"):
            body = f"s = Constant<value_floats=[1.0,1.0,2.0,1.5]>() y = Resize<{how}>(x, , s)"
            check(body, x=shape)
        sizes = (
            "s = Shape<start=0, end=2>(x) h = Shape<start=2, end=4>(x) "
            "f = Constant<value_int={}>() "
            f"g = Mul(h, f) d = Div(g, t) t2 = Concat<axis=0>(s, d) y = Resize<{how}>(x, , , t2)"
        )
        for factor, divisor in ((2, 1), (3, 1), (3, 2)):
            body = sizes.replace("{}", str(factor))
            check(f"t = Constant<value_int={divisor}>() {body}", x=shape)
    other = (
        "s = Shape<start=0, end=2>(x) h = Shape<start=2>(z) t = Concat<axis=0>(s, h) "
        f"y = Resize<{how}>(x, , , t)"
    )
    check(other, x=(1, 2, N, 5), z=(1, 1, Range(3, 9, "m"), 7))


def test_negative_places_of_what_is_scattered():
    body = 'o = Constant<value_int=-3>() j = Add(i, o) y = {}<reduction="add">(x, j, u)'
    check(body.format("ScatterElements"), x=(4, 5), i=("int64", (N, 5)), u=(N, 5))
    check(body.format("ScatterND"), x=(4, 5), i=("int64", (N, 1)), u=(N, 5))


def test_statistics_taken_along_a_dimension_that_varies_are_refused():
    body = "y, m, v = BatchNormalization<training_mode=1>(x, s, b, c, d)"
    names = dict.fromkeys(("s", "b", "c", "d"), (4,))
    with pytest.raises(UnsupportedModelError, match="the mean is taken along it"):
        check(body, "float y, float m, float v", x=at((2, 4, 6), 2), **names)
