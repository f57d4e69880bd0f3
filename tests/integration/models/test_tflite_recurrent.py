"""Operators with state inside compute what LiteRT's interpreter computes over many calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from graphs.c_library import run_tree
from support.c_builds import built_tree
from support.tflite_models import Op, T, constant, tflite_bytes, write_model

import edgekit
from edgekit.base.errors import EdgekitError
from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.models.tflite.file import read_tflite
from edgekit.models.tflite.states import first_values

RANDOM = np.random.default_rng(21)
CALLS = 3
TANH = 4


@dataclass(frozen=True)
class Layer:
    label: str
    operator: str
    input: T
    operands: Mapping[str, T | None]
    """The operands after the input, in order; None is one left out."""
    options: Mapping[str, Any]
    output: T
    between: tuple[T, ...] = ()


Samples = Sequence[Mapping[str, np.ndarray]]


def floats(name: str, *shape: int) -> T:
    return constant(name, RANDOM.standard_normal(shape) * 0.6)


def stored(name: str, *shape: int) -> T:
    return constant(name, RANDOM.integers(-127, 128, shape).astype("int8"), scale=0.008)


def kept(name: str, *shape: int, **more: Any) -> T:
    return T(name, shape, variable=True, **more)


def svdf(label: str, weights: Any, *, bias: bool = True, **options: Any) -> Layer:
    filters, rank, memory = 8, 2, 5
    operands = {
        "w": weights("w", filters, 6),
        "t": weights("t", filters, memory),
        "b": floats("b", filters // rank) if bias else None,
        "s": kept("s", 2, filters * memory),
    }
    table = {"table": "SVDFOptions", "rank": rank, **options}
    return Layer(label, "SVDF", T("x", (2, 6)), operands, table, T("y", (2, filters // rank)))


def integer_svdf() -> Layer:
    filters, rank, memory, wide = 8, 2, 5, "int16"
    time = RANDOM.integers(-9000, 9000, (filters, memory)).astype(wide)
    operands: dict[str, T | None] = {
        "w": constant("w", RANDOM.integers(-127, 128, (filters, 6)).astype("int8"), scale=0.01),
        "t": constant("t", time, scale=0.0002),
        "b": constant("b", RANDOM.integers(-900, 900, 4).astype("int32"), scale=0.0001 * 0.0002),
        "s": kept("s", 1, filters * memory, dtype=wide, scale=0.0003),
    }
    table = {"table": "SVDFOptions", "rank": rank, "fusedActivationFunction": 1}
    given = T("x", (1, 6), "int8", scale=0.04, zero=-7)
    return Layer(
        "svdf-int8", "SVDF", given, operands, table, T("y", (1, 4), "int8", scale=0.05, zero=-9)
    )


def rnn(label: str, operator: str, weights: Any, *, time_major: bool = False) -> Layer:
    operands = {
        "w": weights("w", 7, 6),
        "r": weights("r", 7, 7),
        "b": floats("b", 7),
        "h": kept("h", 2, 7),
    }
    if operator == "RNN":
        table: dict[str, Any] = {"table": "RNNOptions", "fusedActivationFunction": TANH}
        return Layer(label, operator, T("x", (2, 6)), operands, table, T("y", (2, 7)))
    table = {"table": "SequenceRNNOptions", "fusedActivationFunction": TANH}
    lead = (4, 2) if time_major else (2, 4)
    table["timeMajor"] = time_major
    return Layer(label, operator, T("x", (*lead, 6)), operands, table, T("y", (*lead, 7)))


def lstm(
    label: str,
    weights: Any = floats,
    *,
    left_out: Sequence[int] = (),
    units: int = 5,
    shown: int = 5,
    **options: Any,
) -> Layer:
    """An LSTM of whose operands those at some places are left out."""
    made: dict[int, T] = {
        **{place: weights(f"w{place}", units, 6) for place in (1, 2, 3, 4)},
        **{place: weights(f"w{place}", units, shown) for place in (5, 6, 7, 8)},
        **{place: floats(f"w{place}", units) for place in (9, 10, 11, 12, 13, 14, 15)},
        16: weights("w16", shown, units),
        17: floats("w17", shown),
        18: kept("hidden", 2, shown),
        19: kept("cell", 2, units),
        **{place: floats(f"w{place}", units) for place in (20, 21, 22, 23)},
    }
    last = 20 if 20 in left_out else 24
    operands = {str(place): None if place in left_out else made[place] for place in range(1, last)}
    sequence = options.pop("sequence", True)
    name, kind = "LSTM", "LSTMOptions"
    if sequence:
        name, kind = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    table = {"table": kind, "fusedActivationFunction": TANH, **options}
    lead = (2,) if not sequence else (3, 2) if options.get("timeMajor") else (2, 3)
    return Layer(label, name, T("x", (*lead, 6)), operands, table, T("y", (*lead, shown)))


def both_rnn(label: str, weights: Any = floats, **options: Any) -> Layer:
    """Two directions; the hidden states of both begin with zeros."""
    operands = {
        **{
            f"{n}{way}": weights(f"{n}{way}", 7, size)
            for way in "fb"
            for n, size in (("w", 6), ("r", 7))
        },
        **{f"b{way}": floats(f"b{way}", 7) for way in "fb"},
        **{f"h{way}": kept(f"h{way}", 2, 7) for way in "fb"},
    }
    order = [f"{name}{way}" for way in "fb" for name in "wrbh"]
    ordered: dict[str, T | None] = {name: operands[name] for name in order}
    ordered |= dict.fromkeys(("other", "other f", "other b"))
    table = {"table": "BidirectionalSequenceRNNOptions", "fusedActivationFunction": TANH}
    table |= {"mergeOutputs": True, **options}
    lead = (4, 2) if options.get("timeMajor") else (2, 4)
    name = "BIDIRECTIONAL_SEQUENCE_RNN"
    return Layer(label, name, T("x", (*lead, 6)), ordered, table, T("y", (*lead, 14)))


def both_lstm(
    label: str, weights: Any = floats, *, projected: bool = False, rows: int = 2, **options: Any
) -> Layer:
    """Two directions of an LSTM with peepholes."""
    units, shown = 5, 3 if projected else 5
    operands: dict[str, T | None] = {}
    for way in "fb":
        operands |= {f"i{way}{gate}": weights(f"i{way}{gate}", units, 6) for gate in range(4)}
        operands |= {f"r{way}{gate}": weights(f"r{way}{gate}", units, shown) for gate in range(4)}
        operands |= {f"p{way}{gate}": floats(f"p{way}{gate}", units) for gate in range(3)}
        operands |= {f"b{way}{gate}": floats(f"b{way}{gate}", units) for gate in range(4)}
        operands[f"w{way}"] = weights(f"w{way}", shown, units) if projected else None
        operands[f"c{way}"] = floats(f"c{way}", shown) if projected else None
    for way in "fb":
        operands[f"h{way}"] = kept(f"h{way}", rows, shown)
        operands[f"s{way}"] = kept(f"s{way}", rows, units)
    operands |= {f"other {place}": None for place in range(9)}
    table = {"table": "BidirectionalSequenceLSTMOptions", "fusedActivationFunction": TANH}
    table |= {"mergeOutputs": True, "timeMajor": False, **options}
    lead = (3, rows) if options.get("timeMajor") else (rows, 3)
    name = "BIDIRECTIONAL_SEQUENCE_LSTM"
    return Layer(label, name, T("x", (*lead, 6)), operands, table, T("y", (*lead, 2 * shown)))


def integer_lstm(
    label: str,
    *,
    left_out: Sequence[int] = (),
    shown: int = 5,
    cell: int = -11,
    sequence: bool = True,
    **options: Any,
) -> Layer:
    """An LSTM of bytes, its cell in steps of a power of two."""
    units = 5
    ends = {"scale": 0.0071, "zero": 9}
    biases = {"dtype": "int32", "scale": 0.04 * 0.008}

    def whole(name: str, size: int, kind: str, most: int, **more: Any) -> T:
        return constant(name, RANDOM.integers(-most, most, size).astype(kind), **more)

    made: dict[int, T] = {
        **{place: stored(f"w{place}", units, 6) for place in (1, 2, 3, 4)},
        **{place: stored(f"w{place}", units, shown) for place in (5, 6, 7, 8)},
        **{place: whole(f"w{place}", units, "int16", 9000, scale=0.0001) for place in (9, 10, 11)},
        **{p: whole(f"w{p}", units, "int32", 4000, scale=biases["scale"]) for p in range(12, 16)},
        16: stored("w16", shown, units),
        17: whole("w17", shown, "int32", 900, scale=0.008 * 0.006),
        18: kept("hidden", 2, shown, dtype="int8", **ends),
        19: kept("cell", 2, units, dtype="int16", scale=2.0**cell),
    }
    operands = {str(place): None if place in left_out else made[place] for place in range(1, 20)}
    operands |= {str(place): None for place in range(20, 24)}
    name, kind = "LSTM", "LSTMOptions"
    if sequence:
        name, kind = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    table = {"table": kind, "fusedActivationFunction": TANH, **options}
    lead = (2,) if not sequence else (3, 2) if options.get("timeMajor") else (2, 3)
    middle = ends if 16 in left_out else {"scale": 0.006, "zero": -3}
    between = tuple(
        T(
            f"m{place}",
            (0,),
            *(("int8",) if place == 4 else ("int16",)),
            **(middle if place == 4 else {"scale": 2.0**-12}),
        )
        for place in range(5)
    )
    given = T("x", (*lead, 6), "int8", scale=0.04, zero=-7)
    return Layer(
        label, name, given, operands, table, T("y", (*lead, shown), "int8", **ends), between
    )


PEEPHOLES, PROJECTION, NORMALS = (9, 10, 11), (16, 17), (20, 21, 22, 23)
PLAIN = (*PEEPHOLES, *PROJECTION, *NORMALS)
LAYERS = (
    svdf("svdf", floats),
    svdf("svdf-relu", floats, bias=False, fusedActivationFunction=1),
    svdf("svdf-int8-weights", stored),
    svdf("svdf-int8-weights-asymmetric", stored, asymmetricQuantizeInputs=True),
    integer_svdf(),
    rnn("rnn", "RNN", floats),
    rnn("rnn-int8-weights", "RNN", stored),
    rnn("sequence-rnn", "UNIDIRECTIONAL_SEQUENCE_RNN", floats),
    rnn("sequence-rnn-time", "UNIDIRECTIONAL_SEQUENCE_RNN", floats, time_major=True),
    rnn("sequence-rnn-int8-weights", "UNIDIRECTIONAL_SEQUENCE_RNN", stored),
    lstm("lstm", left_out=PLAIN),
    lstm("lstm-clipped", left_out=PLAIN, cellClip=0.4, timeMajor=True),
    lstm("lstm-coupled", left_out=(1, 5, 12, *PLAIN)),
    lstm("lstm-peepholes", left_out=(*PROJECTION, *NORMALS)),
    lstm("lstm-projection", left_out=(*PEEPHOLES, *NORMALS), shown=3, projClip=0.5),
    lstm("lstm-normalised", left_out=(*PEEPHOLES, *PROJECTION)),
    lstm("lstm-step", left_out=PLAIN, sequence=False),
    lstm("lstm-int8-weights", stored, left_out=PLAIN),
    lstm("lstm-int8-weights-asymmetric", stored, left_out=PLAIN, asymmetricQuantizeInputs=True),
    integer_lstm("lstm-int8", left_out=(*PEEPHOLES, *PROJECTION)),
    integer_lstm("lstm-int8-wide-cell", left_out=(*PEEPHOLES, *PROJECTION), cell=-9, cellClip=9.0),
    integer_lstm("lstm-int8-coupled", left_out=(1, 5, 12, *PEEPHOLES, *PROJECTION), timeMajor=True),
    integer_lstm("lstm-int8-peepholes", left_out=PROJECTION, cell=-15),
    integer_lstm("lstm-int8-step", left_out=(*PEEPHOLES, *PROJECTION), sequence=False),
    both_rnn("both-rnn"),
    both_rnn("both-rnn-time", timeMajor=True),
    both_lstm("both-lstm", rows=1),
    both_lstm("both-lstm-time", timeMajor=True),
    both_lstm("both-lstm-projection", projected=True, timeMajor=True, cellClip=0.4),
)


IN_C = (0, 4, 7, 10, 13, 19)
"""One layer of each kind, and SVDF and LSTM in int8."""


def given(layer: Layer) -> np.ndarray:
    if layer.input.dtype == "int8":
        return RANDOM.integers(-128, 128, layer.input.shape).astype("int8")
    return RANDOM.standard_normal(layer.input.shape).astype("float32")


def near(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, what
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=what)
    else:
        slack = 1 if what.startswith(("svdf", "s_")) else 0  # an LSTM is LiteRT's bit for bit
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= slack, what


def together(layers: Sequence[Layer], folder: Path) -> ModelSource:
    """Return one model of many layers, each with an input and an output of its own."""
    tensors, operators, ends = [], [], []
    for number, layer in enumerate(layers):
        operands = [tensor for tensor in layer.operands.values() if tensor is not None]
        own = [layer.input, *operands, layer.output, *layer.between]
        tensors += [replace(tensor, name=f"{tensor.name}_{number}") for tensor in own]
        names = (t and f"{t.name}_{number}" for t in layer.operands.values())
        ends.append((f"x_{number}", f"y_{number}"))
        given = (ends[-1][0], *(name or "" for name in names))
        between = tuple(f"{one.name}_{number}" for one in layer.between)
        operators.append(Op(layer.operator, given, ends[-1][1:], layer.options, between))
    content = tflite_bytes(tensors, operators, [x for x, _ in ends], [y for _, y in ends])
    return write_model(folder, content)


def by_litert(source: ModelSource, samples: Samples) -> Iterator[list[np.ndarray]]:
    """Yield what an interpreter gives that keeps its state itself."""
    interpreter = Interpreter(model_content=source.path.read_bytes())
    interpreter.allocate_tensors()
    for sample in samples:
        for detail, value in zip(interpreter.get_input_details(), sample.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        yield [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def samples_of(layers: Sequence[Layer]) -> Samples:
    return [{f"x_{n}": given(layer) for n, layer in enumerate(layers)} for _ in range(CALLS)]


def check(
    layers: Sequence[Layer],
    folder: Path,
    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
) -> None:
    """Compare a sequence of calls, state included, with both forms of LiteRT's."""
    source = open_model(folder / "model.tflite")
    states = [spec for spec in import_model(source).inputs if spec.state]
    assert len(states) >= len(layers)
    state = first_values(read_tflite(source.path))
    oracle = oracle_for(source)
    samples = samples_of(layers)
    for sample, wanted in zip(samples, by_litert(source, samples), strict=True):
        feeds = {**sample, **state}
        found, expected = run(feeds), oracle.run(feeds)
        for number, layer in enumerate(layers):
            near(found[f"y_{number}"], wanted[number], layer.label)
        for name, value in expected.items():
            near(found[name], value, name)
        state = {spec.name: np.array(found[spec.state]) for spec in states if spec.state}


def test_a_sequence_of_calls_is_litert_s(tmp_path: Path) -> None:
    source = together(LAYERS, tmp_path)
    bundle = edgekit.Workspace(tmp_path).build(source.path, board="local", verify=False)
    with edgekit.Workspace(tmp_path).device("local").open(bundle.path) as session:
        check(LAYERS, tmp_path, session.run)


def test_c_carries_the_same_state(tmp_path: Path) -> None:
    layers = [LAYERS[place] for place in IN_C]
    built = built_tree(together(layers, tmp_path).path, tmp_path / "c")
    check(layers, tmp_path, lambda feeds: run_tree(built.compiled.plan, built.folder, feeds))


def test_a_run_and_verify_carry_the_state_of_a_keyword_spotter(tmp_path: Path) -> None:
    source = together(LAYERS[:1], tmp_path)
    (tmp_path / "given").mkdir()
    samples = samples_of(LAYERS[:1])
    for number, sample in enumerate(samples):
        np.save(tmp_path / "given" / f"{number}.npy", sample["x_0"])
    ws = edgekit.Workspace(tmp_path)
    bundle = ws.build(source.path, board="local")
    assert ws.verify(bundle.path).passed
    assert ws.verify(bundle.path, [str(tmp_path / "given")], model=source.path).passed
    ws.run_report(bundle.path, [str(tmp_path / "given")], out=tmp_path / "out")
    found = [np.load(folder / "y_0.npy") for folder in sorted((tmp_path / "out").iterdir())]
    for ours, (wanted,) in zip(found, by_litert(source, samples), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)


def test_an_lstm_of_integers_with_a_projection_is_refused(tmp_path: Path) -> None:
    source = together([integer_lstm("projected", left_out=PEEPHOLES, shown=3)], tmp_path)
    with pytest.raises(EdgekitError, match="its projection is in integers"):
        import_model(source)


def test_what_litert_leaves_undefined_is_refused(tmp_path: Path) -> None:
    """LiteRT's kernels give another result of such a batch in each call."""
    source = together([both_lstm("batch")], tmp_path)
    with pytest.raises(EdgekitError, match="no defined result for a batch"):
        import_model(source)
