"""Saved PyTorch programs that were made to run code, or were damaged: refused in one sentence.

Where a file would run code, the code touches a file: whether it ran is seen in the file system.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.examples import examples, one_of
from support.needs import import_needed

from edgekit.base.errors import EdgekitError
from edgekit.models.model import ModelSource, import_model, open_model, scan_model
from edgekit.models.oracle import oracle_for
from edgekit.models.torch.expressions import check_expression
from edgekit.models.torch.program import open_program

torch = import_needed("torch")

Graph = dict[str, Any]
Change = Callable[[dict[str, Any], Path], None]


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.weight)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "program.pt2"
    torch.export.save(torch.export.export(Small().eval(), (torch.ones(2, 3),)), path)
    return path


@pytest.fixture
def sprung(tmp_path: Path) -> Iterator[Path]:
    """A file that hostile code makes."""
    trap = tmp_path / "sprung"
    yield trap
    assert not trap.exists(), "the file ran code"


def members(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def packed(path: Path, contents: list[tuple[str, bytes]]) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members of one name
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in contents:
                archive.writestr(name, content)
    return path


def refused(path: Path) -> EdgekitError:
    """The error, the same from every command that reads a model."""
    source = ModelSource(path, "torch", "")
    told = []
    for read in (scan_model, import_model, oracle_for):
        with pytest.raises(EdgekitError) as caught:
            read(source)
        assert caught.value.hint
        told.append(caught.value)
    assert len({error.message for error in told}) == 1
    return told[0]


def trap_pickle(trap: Path) -> bytes:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (trap,))

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap(), protocol=2))
        archive.writestr("archive/version", "3\n")
    return stream.getvalue()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("member", ["data/sample_inputs/model.pt", "models/model.json"])
def test_two_members_of_one_name_are_refused(
    member: str, first: bool, whole: Path, tmp_path: Path, sprung: Path
) -> None:
    contents = members(whole)
    evil = ("program/" + member, trap_pickle(sprung))

    error = refused(packed(tmp_path / "m.pt2", [evil, *contents] if first else [*contents, evil]))

    assert "twice" in error.message


@pytest.mark.parametrize("folder", ["other", "Program", "program "])
def test_a_second_top_folder_is_refused(folder: str, whole: Path, tmp_path: Path) -> None:
    model = next(content for name, content in members(whole) if name.endswith("model.json"))

    error = refused(
        packed(tmp_path / "m.pt2", [*members(whole), (f"{folder}/models/model.json", model)])
    )

    assert "top folders" in error.message or "twice" in error.message


def test_a_program_behind_another_zip_file_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(
        packed(tmp_path / "front.zip", [("a", b"b")]).read_bytes() + whole.read_bytes()
    )

    refused(path)


@pytest.mark.parametrize(
    "name",
    ["data/aotinductor/model/wrapper.so", "data/constants/custom_obj_0", "data/weights/model.pt"],
)
def test_what_torch_would_run_or_unpickle_is_refused(
    name: str, whole: Path, tmp_path: Path, sprung: Path
) -> None:
    error = refused(
        packed(tmp_path / "m.pt2", [*members(whole), (f"program/{name}", trap_pickle(sprung))])
    )

    assert "could run any code" in error.message


def test_files_that_torch_does_not_need_are_left_out(whole: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "m.pt2", [*members(whole), ("program/extra/notes", b"\xff")])

    assert import_model(ModelSource(path, "torch", "")).inputs[0].shape == (2, 3)


def nodes(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["graph_module"]["graph"]["nodes"]
    return found


def calls(target: str) -> Change:
    def change(document: dict[str, Any], trap: Path) -> None:
        nodes(document)[0]["target"] = target

    return change


def gadget(document: dict[str, Any], trap: Path) -> None:
    """methodcaller("numpy")(x), then methodcaller("tofile", trap)(that)."""

    def text(value: str) -> dict[str, Any]:
        return {"name": "", "arg": {"as_string": value}, "kind": 1}

    def node(name: str) -> dict[str, Any]:
        return {"name": "", "arg": {"as_tensor": {"name": name}}, "kind": 1}

    def call(target: str, name: str, *inputs: dict[str, Any]) -> dict[str, Any]:
        document["graph_module"]["graph"]["tensor_values"][name] = document["graph_module"][
            "graph"
        ]["tensor_values"]["x"]
        return {
            "target": target,
            "inputs": list(inputs),
            "outputs": [{"as_tensor": {"name": name}}],
            "metadata": {},
            "is_hop_single_tensor_return": None,
        }

    nodes(document)[:0] = [
        call("_operator.methodcaller", "a", text("numpy")),
        call("_operator.call", "b", node("a"), node("x")),
        call("_operator.methodcaller", "c", text("tofile"), text(str(trap))),
        call("_operator.call", "d", node("c"), node("b")),
    ]


def from_file(document: dict[str, Any], trap: Path) -> None:
    """A tensor that is a file: what is computed into it is written to it."""
    nodes(document)[0] |= {
        "target": "torch.ops.aten.from_file.default",
        "inputs": [
            {"name": "filename", "arg": {"as_string": str(trap)}, "kind": 1},
            {"name": "shared", "arg": {"as_bool": True}, "kind": 2},
            {"name": "size", "arg": {"as_int": 6}, "kind": 2},
        ],
    }


def renamed(old: str, new: str) -> Change:
    def change(document: dict[str, Any], trap: Path) -> None:
        text = json.dumps(document).replace(json.dumps(old), json.dumps(new.format(trap=trap)))
        document.clear()
        document.update(json.loads(text))

    return change


def structure(kind: str, context: object) -> Change:
    def change(document: dict[str, Any], trap: Path) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        protocol, spec = json.loads(signature["in_spec"])
        spec["children_spec"][1] |= {"type": kind, "context": json.dumps(context)}
        signature["in_spec"] = json.dumps([protocol, spec])

    return change


def argument_name(document: dict[str, Any], trap: Path) -> None:
    signature = document["graph_module"]["module_call_graph"][0]["signature"]
    signature["forward_arg_names"] = [f"x=open({str(trap)!r}, 'w')"]


CHANGES: dict[str, Change] = {
    "a chain of method calls": gadget,
    "a tensor in a file": from_file,
    "operator.attrgetter": calls("_operator.attrgetter"),
    "a private attribute": calls("torch.ops.aten.__class__.mro"),
    "an attribute of the namespace": calls("torch.ops.aten.__getattribute__.x"),
    "a method of an operator": calls("torch.ops.aten.add.overloads"),
    "a private method": calls("torch.ops.aten.add.__call__"),
    "an operator without its overload": calls("torch.ops.aten.relu"),
    "an operator that calls": calls("torch.ops.higher_order.run_const_graph"),
    "an operator that is none": calls("torch.ops.aten.no_such_thing.default"),
    "another namespace": calls("torch.ops.image.write_file.default"),
    "another module": calls("math.__loader__"),
    "a torch function": calls("torch._check_with"),
    "a line break": calls("torch.ops.aten.relu.default\n"),
    "an input's name": renamed("x", "x=open('{trap}','w')"),
    "a node's name": renamed("mul", "mul=open('{trap}','w');y"),
    "a name on two lines": renamed("mul", "mul\nimport os"),
    "a weight's name": renamed("weight", 'weight", open("{trap}","w"), "x'),
    "a weight that is a class": renamed("weight", "__class__.forward"),
    "an argument's name": argument_name,
    "a class of its own": structure("collections.defaultdict", ["os.abort", []]),
    "an enumeration": structure(
        "builtins.dict", [{"__enum__": True, "fqn": "antigravity:x", "name": "y"}]
    ),
    "a key that is code": structure("builtins.dict", ["x=open('/','w')"]),
}


def changed(whole: Path, path: Path, change: Change, trap: Path = Path("/none")) -> Path:
    contents = []
    for name, content in members(whole):
        if name.endswith("models/model.json"):
            document = json.loads(content)
            change(document, trap)
            assert document != json.loads(content)
            content = json.dumps(document).encode()
        contents.append((name, content))
    return packed(path, contents)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_program_that_would_run_code_is_refused(
    change: Change, whole: Path, tmp_path: Path, sprung: Path
) -> None:
    error = refused(changed(whole, tmp_path / "m.pt2", change, sprung))

    assert "cannot load" not in error.message, "torch was asked"


def dimension(expression: str) -> Change:
    """The first dimension of what is computed: of an input, it would only be one left open."""

    def change(document: dict[str, Any], trap: Path) -> None:
        written = {"as_expr": {"expr_str": expression, "hint": {"as_int": 2}}}
        for name, tensor in document["graph_module"]["graph"]["tensor_values"].items():
            if name != "x":
                tensor["sizes"][0] = written

    return change


def scalars(*calls: tuple[str, object, object]) -> Change:
    """Python operators, each on constants or on earlier results by their names."""

    def argument(value: object) -> dict[str, Any]:
        if isinstance(value, str):
            return {"as_sym_int": {"as_name": value}}
        return value if isinstance(value, dict) else {"as_int": value}

    def change(document: dict[str, Any], trap: Path) -> None:
        graph = document["graph_module"]["graph"]
        for number, (operator, left, right) in enumerate(calls):
            inputs = [
                {"name": name, "arg": argument(value), "kind": 1}
                for name, value in (("a", left), ("b", right))
            ]
            name = f"n{number}"
            graph["sym_int_values"][name] = {"as_int": 9}
            graph["nodes"].insert(
                number,
                {
                    "target": f"_operator.{operator}",
                    "inputs": inputs,
                    "outputs": [{"as_sym_int": {"as_name": name}}],
                    "metadata": {},
                    "is_hop_single_tensor_return": None,
                    "name": name,
                },
            )

    return change


ENDLESS: dict[str, Change] = {
    "a tower of powers": dimension("9**9**9**9"),
    "a power of a power": dimension("((9**99)**99)**99"),
    "a tower of calls": dimension("Pow(Integer(9), Pow(Integer(9), Integer(99)))"),
    "a large exponent": dimension("Pow(Integer(9), Integer(999999999))"),
    "an exponent that is a symbol": dimension("99**s0"),
    "a long number": dimension("Integer(" + "9" * 1900 + ")"),
    "a long product": dimension("*".join(["9" * 20] * 60)),
    "a sum to multiply out": dimension("(s0 + s1 + s2 + s3 + s4 + s5)**99"),
    "a product of sums": dimension("*".join(f"(s{n} + s{n + 1} + 1)" for n in range(40))),
    "a factorial": dimension("999999999!"),
    "a shift": dimension("9<<99999999999"),
    "deep nesting": dimension("-" * 1900 + "9"),
    "a power that the graph computes": scalars(("pow", 9, 999999999)),
    "a shift that the graph computes": scalars(("lshift", 9, 999999999999)),
    "powers of powers in the graph": scalars(
        *[("pow", f"n{n - 1}" if n else 9, 99) for n in range(9)]
    ),
    "squares of squares in the graph": scalars(
        ("mul", 9, 9), *[("mul", f"n{n}", f"n{n}") for n in range(60)]
    ),
    "a list that is repeated": scalars(("mul", {"as_ints": [1, 2]}, 99999999999)),
    "a text that is filled": scalars(("mod", {"as_string": "%99999999999d"}, 9)),
}


@pytest.mark.parametrize("change", ENDLESS.values(), ids=ENDLESS)
def test_a_program_that_would_compute_without_end_is_refused(
    change: Change, whole: Path, tmp_path: Path
) -> None:
    error = refused(changed(whole, tmp_path / "m.pt2", change))

    told = ("a dimension written as", "grow too large", "no small constant", "more than numbers")
    assert any(words in error.message for words in told), error.message


class Dynamic(torch.nn.Module):
    """Its dimensions are computed in each way that torch.export writes down."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[0]
        return (
            torch.relu(x),
            torch.cat([x, x, x[:1]]),
            torch.arange(n * n) + torch.arange(n**2),
            x.new_zeros(torch.sym_max(1, n // 2)),
            x.new_zeros(torch.sym_min(7, n) + n),
            x.new_zeros(n % 3 + 2),
            x.new_zeros((n << 1) + 1),
            torch.nn.functional.interpolate(x[None, None], scale_factor=1.5),
            torch.arange(0, n, 3),
        )


def test_a_program_with_dynamic_dimensions_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.pt2"
    shapes = {"x": {0: torch.export.Dim("n", min=4, max=64)}}
    torch.export.save(
        torch.export.export(Dynamic().eval(), (torch.ones(8, 6),), dynamic_shapes=shapes), path
    )
    model = json.loads(next(c for name, c in members(path) if name.endswith("model.json")))
    written = set(re.findall(r'"expr_str": "(\w+)\(', json.dumps(model)))

    assert {"Symbol", "Add", "Mul", "Pow", "Max", "Min", "FloorDiv"} <= written
    outputs = open_program(ModelSource(path, "torch", "")).program.module()(torch.ones(10, 6))
    assert [tuple(output.shape)[:1] for output in outputs[:7]] == [
        (10,), (21,), (100,), (5,), (17,), (3,), (21,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "expression",
    [
        *("2*s0 + 1", "Max(1, s0//2)", "s0**2", "-s0 + 3", "(s0 + 1)**3 - 1", "s0 % 2"),
        *("Mod(s0, 3)", "PythonMod(s0, 3)", "FloorDiv(s0 - 3, 2) + 1", "CleanDiv(4*s0, 2)"),
        *("Eq(s0, 2)", "Ne(s0, s1)", "(s0 >= 2) & (s1 < 9)", "ModularIndexing(s0, 1, 2)"),
        *("Integer(9223372036854775807)", "Pow(Symbol('s0', integer=True), Integer(-1))"),
        "TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s7', positive=True))))",
        "GreaterThan(Symbol('u0', integer=True), Integer(0))",
    ],
)
def test_what_torch_writes_as_a_dimension_is_taken(expression: str) -> None:
    check_expression(expression)


@pytest.mark.parametrize(
    "entry", [{"path_name": "../../models/model.json"}, {"path_name": "weight_7"}, {"path_name": 3}]
)
def test_weights_in_another_file_are_refused(
    entry: dict[str, Any], whole: Path, tmp_path: Path
) -> None:
    contents = []
    for name, content in members(whole):
        if name.endswith("weights_config.json"):
            document = json.loads(content)
            document["config"]["weight"] |= entry
            content = json.dumps(document).encode()
        contents.append((name, content))

    refused(packed(tmp_path / "m.pt2", contents))


def test_weights_without_values_are_refused(whole: Path, tmp_path: Path) -> None:
    contents = [(n, b"" if n.endswith("weight_0") else content) for n, content in members(whole)]

    assert "no values for weight" in refused(packed(tmp_path / "m.pt2", contents)).message


def test_a_file_that_is_replaced_while_it_is_read_is_read_once(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sprung: Path
) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(whole.read_bytes())
    load = torch.export.load

    def replaced(*arguments: Any, **more: Any) -> Any:
        path.write_bytes(b"something else")
        return load(*arguments, **more)

    monkeypatch.setattr(torch.export, "load", replaced)

    assert import_model(ModelSource(path, "torch", "")).inputs[0].shape == (2, 3)


def damaged(whole: bytes, number: int) -> bytes:
    chance = random.Random(number)
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 2, 8))):
        start = chance.randrange(len(data) or 1)
        if start == len(data):
            break
        change = chance.randrange(4)
        if change == 0:
            data[start] ^= 1 << chance.randrange(8)
        elif change == 1:
            data[start] = chance.randrange(256)
        elif change == 2:
            del data[start : start + chance.randrange(1, 40)]
        else:
            data[start:start] = data[start - 20 : start]
    return bytes(data)


def test_damaged_programs_are_refused_in_words(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    for number in range(examples(200)):
        path.write_bytes(damaged(whole.read_bytes(), number))
        try:
            scan_model(ModelSource(path, "torch", ""))
        except EdgekitError as error:
            assert error.hint


@pytest.mark.parametrize("rounds", one_of(2, 16))
def test_programs_with_damaged_descriptions_are_refused_in_words(
    rounds: int, whole: Path, tmp_path: Path
) -> None:
    """The zip file is sound: what is damaged is what lies in it."""
    path = tmp_path / "m.pt2"
    contents = members(whole)
    # What passes the checks is converted, which takes seconds; each of the file's parts is damaged.
    for number in range(rounds * len(contents)):
        which = number % len(contents)
        changed = [
            (name, damaged(content, number) if place == which and content else content)
            for place, (name, content) in enumerate(contents)
        ]
        packed(path, changed)
        try:
            import_model(ModelSource(path, "torch", ""))
        except EdgekitError as error:
            assert error.hint


BOUNDS: dict[str, tuple[object, str]] = {
    "text": ({"min_val": "__import__('os')", "max_val": 4}, "bounded by"),
    "code as the largest": ({"min_val": 2, "max_val": "1 or print()"}, "bounded by"),
    "huge": ({"min_val": 10**400, "max_val": None}, "not a program"),
    "a power of ten": ({"min_val": 2, "max_val": 1e300}, "bounded by"),
    "below zero": ({"min_val": 2, "max_val": -(1 << 61)}, "bounded by"),
    "a list": ({"min_val": [3], "max_val": 4}, "bounded by"),
    "true": ({"min_val": 2, "max_val": True}, "bounded by"),
    "no table": ("2 to 4", "not a program"),
}


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with an open dimension of 2 to 16."""
    path = tmp_path_factory.mktemp("rows") / "program.pt2"
    shapes = ({0: torch.export.Dim("rows", min=2, max=16)},)
    torch.export.save(
        torch.export.export(Rows().eval(), (torch.ones(4, 3),), dynamic_shapes=shapes), path
    )
    return path


def bounded(bounds: object) -> Change:
    def change(document: dict[str, Any], trap: Path) -> None:
        ranges = document["range_constraints"]
        assert len(ranges) == 1
        ranges.update(dict.fromkeys(ranges, bounds))

    return change


@pytest.mark.parametrize(("bounds", "said"), BOUNDS.values(), ids=BOUNDS)
def test_hostile_bounds_of_a_dimension_are_refused(
    bounds: object, said: str, of_rows: Path, tmp_path: Path
) -> None:
    error = refused(changed(of_rows, tmp_path / "m.pt2", bounded(bounds)))

    assert said in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize("bounds", [{}, {"min_val": None}, {"min_val": -5, "max_val": None}])
def test_missing_bounds_bound_nothing(bounds: object, of_rows: Path, tmp_path: Path) -> None:
    path = changed(of_rows, tmp_path / "m.pt2", bounded(bounds))

    assert scan_model(ModelSource(path, "torch", "")).inputs


@pytest.mark.parametrize(
    "bounds",
    [{"min_val": 1 << 60, "max_val": None}, {"min_val": 9, "max_val": 3}, {"max_val": -5}],
    ids=["huge", "none fits", "below zero"],
)
def test_a_size_outside_the_bounds_is_refused(
    bounds: object, of_rows: Path, tmp_path: Path
) -> None:
    path = changed(of_rows, tmp_path / "m.pt2", bounded(bounds))

    with pytest.raises(EdgekitError) as caught:
        import_model(open_model(path, shapes={"x": (4, 3)}))

    assert caught.value.hint
    assert "\n" not in caught.value.message
