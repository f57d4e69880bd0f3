"""TFLite models that keep state, branch or loop compute what LiteRT's interpreter computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from support.c_builds import SANITIZED, built_tree, make
from support.tflite_models import Graph, Op, T, constant, run_both, tflite_bytes, write_model

import edgekit
from edgekit.base.errors import UnsupportedModelError
from edgekit.compiler.passes.loops import has_loops
from edgekit.models.model import import_model, scan_model
from edgekit.models.tflite.file import read_tflite
from edgekit.models.tflite.states import first_values

RANDOM = np.random.default_rng(5)
HANDLE = T("h", (), "resource")


def handle(name: str, key: str) -> Op:
    return Op("VAR_HANDLE", (), (name,), {"table": "VarHandleOptions", "sharedName": key})


def streaming(rows: int = 3) -> bytes:
    """A window over the last rows: y = sum(window), and a number that counts the calls."""
    begin = np.random.default_rng(1).standard_normal((rows, 4)).astype("float32")
    tensors = [
        T("x", (1, 4)),
        *(T(name, (), "resource") for name in ("h", "c")),
        T("old", (rows, 4)),
        constant("b", np.array([1, 0], "int32")),
        constant("s", np.array([rows - 1, 4], "int32")),
        T("kept", (rows - 1, 4)),
        T("window", (rows, 4)),
        constant("axis", np.array([0], "int32")),
        T("y", (4,)),
        T("calls", (1,), "int32"),
        constant("one", np.array([1], "int32")),
        T("more", (1,), "int32"),
        T("out", (1,), "int32"),
    ]
    operators = [
        Op("CALL_ONCE", (), (), {"table": "CallOnceOptions", "initSubgraphIndex": 1}),
        handle("h", "window"),
        handle("c", "calls"),
        Op("READ_VARIABLE", ("h",), ("old",), {"table": "ReadVariableOptions"}),
        Op("SLICE", ("old", "b", "s"), ("kept",)),
        Op("CONCATENATION", ("kept", "x"), ("window",), {"table": "ConcatenationOptions"}),
        Op("ASSIGN_VARIABLE", ("h", "window"), (), {"table": "AssignVariableOptions"}),
        Op("SUM", ("window", "axis"), ("y",), {"table": "ReducerOptions"}),
        Op("READ_VARIABLE", ("c",), ("calls",), {"table": "ReadVariableOptions"}),
        Op("ADD", ("calls", "one"), ("more",), {"table": "AddOptions"}),
        Op("ASSIGN_VARIABLE", ("c", "more"), (), {"table": "AssignVariableOptions"}),
        Op("MUL", ("more", "one"), ("out",), {"table": "MulOptions"}),
    ]
    first = Graph(
        [
            T("h", (), "resource"),
            T("c", (), "resource"),
            constant("begin", begin),
            constant("none", np.array([7], "int32")),
        ],
        [
            handle("h", "window"),
            handle("c", "calls"),
            Op("ASSIGN_VARIABLE", ("h", "begin"), (), {"table": "AssignVariableOptions"}),
            Op("ASSIGN_VARIABLE", ("c", "none"), (), {"table": "AssignVariableOptions"}),
        ],
        [],
        [],
    )
    return tflite_bytes(tensors, operators, ["x"], ["y", "out"], [first])


def test_a_sequence_of_calls_is_what_litert_keeps_in_its_interpreter(tmp_path: Path) -> None:
    content = streaming()
    source = write_model(tmp_path, content)
    model = import_model(source)
    assert [(spec.name, spec.state) for spec in model.inputs] == [
        ("x", None),
        ("window", "window_next"),
        ("calls", "calls_next"),
    ]
    assert [spec.name for spec in model.outputs] == ["y", "out", "window_next", "calls_next"]
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_output_details()]
    state = first_values(read_tflite(source.path))
    for call in range(4):
        x = RANDOM.standard_normal((1, 4)).astype("float32")
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        y, calls = (interpreter.get_tensor(place) for place in places)
        found, expected = run_both(source, {"x": x, **state})
        np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-6)
        assert found["out"].tolist() == calls.tolist() == [8 + call]
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
        state = {spec.name: found[spec.state] for spec in model.inputs if spec.state}


def test_a_variable_without_a_first_value_is_named(tmp_path: Path) -> None:
    content = tflite_bytes(
        [HANDLE, T("x", (4,)), T("old", (4,)), T("y", (4,))],
        [
            handle("h", "lost"),
            Op("READ_VARIABLE", ("h",), ("old",), {"table": "ReadVariableOptions"}),
            Op("ADD", ("old", "x"), ("y",), {"table": "AddOptions"}),
        ],
        ["x"],
        ["y"],
    )
    source = write_model(tmp_path, content)
    (entry,) = scan_model(source).unsupported
    assert entry.name == "VAR_HANDLE"
    with pytest.raises(UnsupportedModelError, match="first value of its variable"):
        import_model(source)


def branch(operator: str) -> Graph:
    options = {"table": f"{operator.title()}Options"}
    return Graph(
        [T("a", (2, 3)), T("b", (2, 3)), T("r", (2, 3))],
        [Op(operator, ("a", "b"), ("r",), options)],
        ["a", "b"],
        ["r"],
    )


@pytest.mark.parametrize("flag", [True, False])
def test_both_branches_of_an_if_are_right(flag: bool, tmp_path: Path) -> None:
    options = {"table": "IfOptions", "thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
    content = tflite_bytes(
        [T("flag", (1,), "bool"), T("a", (2, 3)), T("b", (2, 3)), T("r", (2, 3))],
        [Op("IF", ("flag", "a", "b"), ("r",), options)],
        ["flag", "a", "b"],
        ["r"],
        [branch("ADD"), branch("MUL")],
    )
    a, b = (RANDOM.standard_normal((2, 3)).astype("float32") for _ in range(2))
    feeds = {"flag": np.array([flag]), "a": a, "b": b}
    found, expected = run_both(write_model(tmp_path, content), feeds)
    np.testing.assert_allclose(found["r"], expected["r"], rtol=1e-6)
    np.testing.assert_allclose(found["r"], a + b if flag else a * b, rtol=1e-6)


def looped(*, until: str = "5") -> bytes:
    """x + x twice and more: a counter runs to a constant, or to what is given."""
    known = until.isdigit()
    limit = [constant("n", np.array([int(until)], "int32"))] if known else [T("n", (1,), "int32")]
    carried = (T("i", (1,), "int32"), T("v", (2, 2)), T("m", (1,), "int32"))
    condition = Graph(
        [*carried, T("go", (1,), "bool")],
        [Op("LESS", ("i", "m"), ("go",))],
        ["i", "v", "m"],
        ["go"],
    )
    body = Graph(
        [*carried, constant("one", np.array([1], "int32")), T("j", (1,), "int32"), T("w", (2, 2))],
        [
            Op("ADD", ("i", "one"), ("j",), {"table": "AddOptions"}),
            Op("ADD", ("v", "v"), ("w",), {"table": "AddOptions"}),
        ],
        ["i", "v", "m"],
        ["j", "w", "m"],
    )
    options = {"table": "WhileOptions", "condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    return tflite_bytes(
        [
            constant("zero", np.array([0], "int32")),
            T("x", (2, 2)),
            *limit,
            T("k", (1,), "int32"),
            T("y", (2, 2)),
            T("l", (1,), "int32"),
        ],
        [Op("WHILE", ("zero", "x", "n"), ("k", "y", "l"), options)],
        ["x"] if known else ["x", "n"],
        ["y", "k"],
        [condition, body],
    )


@pytest.mark.parametrize("count", [4, 20])
def test_a_loop_with_a_known_count_is_repeated_or_written_out(count: int, tmp_path: Path) -> None:
    x = RANDOM.standard_normal((2, 2)).astype("float32")
    source = write_model(tmp_path, looped(until=str(count)))
    found, expected = run_both(source, {"x": x})
    np.testing.assert_array_equal(found["y"], expected["y"])
    np.testing.assert_array_equal(found["y"], x * 2**count)
    assert found["k"].tolist() == [count]
    model = import_model(source)
    written_out = "loops were written out, iteration by iteration" in model.repairs
    assert written_out == (count == 4) == (not has_loops(model.module))


def recurrent(steps: int, *, of_one_frame: bool) -> bytes:
    """y[k] = tanh(x[k] + W y[k-1]): as converters write a recurrent layer, with a counter, the last
    output, and all of them. A frame is taken by its number, or cut out."""
    counter, last, all_ = T("i", (), "int32"), T("h", (1, 3)), T("ys", (steps, 3))
    frames = T("x", (steps, 3))
    carried = (counter, last, all_, frames)
    condition = Graph(
        [*carried, constant("n", np.array(steps, "int32")), T("go", (), "bool")],
        [Op("LESS", ("i", "n"), ("go",))],
        ["i", "h", "ys", "x"],
        ["go"],
    )
    weights = np.linspace(-0.6, 0.5, 9).reshape(3, 3).astype("float32")
    begin = [T("at", (2,), "int32"), constant("zero", np.array(0, "int32"))]
    pack = Op("PACK", ("i", "zero"), ("at",), {"table": "PackOptions", "valuesCount": 2})
    size = constant("size", np.array([1, 3], "int32"))
    shape = {"table": "ReshapeOptions", "newShape": [1, 3]}
    taken = [
        Op("GATHER", ("x", "i"), ("frame",), {"table": "GatherOptions"}),
        Op("RESHAPE", ("frame", "size"), ("row",), shape),
    ]
    cut = [Op("SLICE", ("x", "at", "size"), ("row",), {"table": "SliceOptions"})]
    dense = {"table": "FullyConnectedOptions"}
    body = Graph(
        [
            *(*carried, *begin, size, constant("w", weights)),
            constant("zeros", np.zeros(3, "float32")),
            *(constant("one", np.array(1, "int32")), T("j", (), "int32"), T("frame", (3,))),
            *(T(name, (1, 3)) for name in ("row", "seen", "sum", "next")),
            T("made", (steps, 3)),
        ],
        [
            *(pack, *(cut if of_one_frame else taken)),
            Op("FULLY_CONNECTED", ("h", "w", "zeros"), ("seen",), dense),
            Op("ADD", ("row", "seen"), ("sum",), {"table": "AddOptions"}),
            Op("TANH", ("sum",), ("next",)),
            Op("DYNAMIC_UPDATE_SLICE", ("ys", "next", "at"), ("made",)),
            Op("ADD", ("i", "one"), ("j",), {"table": "AddOptions"}),
        ],
        ["i", "h", "ys", "x"],
        ["j", "next", "made", "x"],
    )
    options = {"table": "WhileOptions", "condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    return tflite_bytes(
        [
            *(constant("start", np.array(0, "int32")), constant("h0", np.zeros((1, 3), "float32"))),
            *(constant("ys0", np.zeros((steps, 3), "float32")), frames),
            *(T("k", (), "int32"), T("hn", (1, 3)), T("y", (steps, 3)), T("xn", (steps, 3))),
        ],
        [Op("WHILE", ("start", "h0", "ys0", "x"), ("k", "hn", "y", "xn"), options)],
        ["x"],
        ["y", "hn"],
        [condition, body],
    )


@pytest.mark.parametrize("of_one_frame", [False, True])
def test_a_recurrent_layer_is_repeated(of_one_frame: bool, tmp_path: Path) -> None:
    source = write_model(tmp_path, recurrent(12, of_one_frame=of_one_frame))
    found, expected = run_both(source, {"x": RANDOM.standard_normal((12, 3)).astype("float32")})
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["hn"], expected["hn"], rtol=1e-5, atol=1e-6)
    assert has_loops(import_model(source).module)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_loop_that_data_ends_runs_until_then(count: int, tmp_path: Path) -> None:
    x = RANDOM.standard_normal((2, 2)).astype("float32")
    source = write_model(tmp_path, looped(until="input"))
    found, expected = run_both(source, {"x": x, "n": np.array([count], "int32")})
    np.testing.assert_array_equal(found["y"], expected["y"])
    np.testing.assert_array_equal(found["y"], x * 2**count)
    assert found["k"].tolist() == [count]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("streaming")
    model = folder / "stream.tflite"
    model.write_bytes(streaming())
    return model, edgekit.Workspace(folder).build(model, board="local", out=folder / "b").path


def test_a_run_carries_state_from_sample_to_sample(
    bundle: tuple[Path, Path], tmp_path: Path
) -> None:
    samples = [RANDOM.standard_normal((1, 4)).astype("float32") for _ in range(3)]
    for number, sample in enumerate(samples):
        np.save(tmp_path / f"{number}.npy", sample)
    interpreter = Interpreter(model_path=str(bundle[0]))
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_output_details()]
    ws = edgekit.Workspace(tmp_path)
    ws.run_report(bundle[1], [str(tmp_path)], out=tmp_path / "o")
    expected = []
    for sample in samples:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
        interpreter.invoke()
        expected.append([np.array(interpreter.get_tensor(place)) for place in places])
    for folder, (y, calls) in zip(sorted((tmp_path / "o").iterdir()), expected, strict=True):
        np.testing.assert_allclose(np.load(folder / "y.npy"), y, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.load(folder / "out.npy"), calls)
    ws.run_report(bundle[1], [str(tmp_path)], out=tmp_path / "again", keep_state=False)
    counts = [np.load(folder / "out.npy").item() for folder in (tmp_path / "again").iterdir()]
    assert counts == [8, 8, 8]


def test_the_vectors_of_a_bundle_with_state_are_a_sequence(bundle: tuple[Path, Path]) -> None:
    opened = edgekit.open_bundle(bundle[1])
    vectors = {vector.name: vector for vector in opened.vectors()}
    np.testing.assert_array_equal(vectors["random"].inputs["calls"], [7])
    np.testing.assert_array_equal(vectors["call-3"].outputs["out"], [10])
    before, after = vectors["call-2"], vectors["call-3"]
    np.testing.assert_array_equal(before.outputs["window_next"], after.inputs["window"])
    ws = edgekit.Workspace(bundle[0].parent)
    assert ws.verify(bundle[1]).passed


def test_the_state_is_an_input_and_an_output_of_the_program_in_c(tmp_path: Path) -> None:
    built = built_tree(write_model(tmp_path, streaming()).path, tmp_path / "c")
    tested = make(built.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count(": ok\n") == len(built.expected) == 4
