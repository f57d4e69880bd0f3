from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.base.errors import EdgekitError, InputError, UsageError
from edgekit.base.shapes import largest
from edgekit.cli import COMMANDS, root
from edgekit.cli.options import Group, parse_constant_option, parse_shape_option
from edgekit.models.constants import numbers

NAMES = st.text(min_size=1)
SHAPES = st.lists(st.integers(1, 10**11), min_size=1, max_size=16)


@given(NAMES, SHAPES)
def test_a_shape_comes_back_as_it_was_written(name: str, shape: list[int]) -> None:
    text = f"{name}={','.join(map(str, shape))}"

    assert parse_shape_option(text) == (name, tuple(shape))


def test_a_name_may_hold_an_equals_sign_and_spaces_may_follow_commas() -> None:
    assert parse_shape_option("a=b:0=1, 2") == ("a=b:0", (1, 2))


@pytest.mark.parametrize(
    "text",
    [
        "1,3,224,224",
        "=1,2",
        "x=",
        "x=1,",
        "x=1,,2",
        "x=0",
        "x=-1",
        "x=1.5",
        "x=a,b",
        "x=1_000",
        "x=\u0661",
        "x=" + "9" * 5000,
        "x=" + ",".join(["1"] * 17),
        "x=1x(512..1)",
        "x=1x(0..4)",
        "x=(1..)",
        "x=(n 1..4)",
        "x=(1..4",
        "x=1..4)",
    ],
)
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shape_option(text)

    assert caught.value.hint


@given(st.text())
def test_a_shape_option_gives_a_shape_or_a_usage_error(text: str) -> None:
    try:
        name, shape = parse_shape_option(text)
    except UsageError:
        return
    assert name
    assert all(extent > 0 for extent in largest(shape))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", np.array(5, np.int64)),
        ("5,", np.array([5], np.int64)),
        ("-1,2", np.array([-1, 2], np.int64)),
        ("0.5", np.array(0.5, np.float32)),
        ("1, 2.5", np.array([1, 2.5], np.float32)),
        ("1e3,inf", np.array([1000, np.inf], np.float32)),
        ("true,false", np.array([True, False])),
    ],
)
def test_numbers_get_the_type_they_look_like(value: str, expected: np.ndarray) -> None:
    name, array = parse_constant_option(f"axes={value}")

    assert name == "axes"
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(array, expected)


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=2, max_size=8))
def test_whole_numbers_lose_no_digit(values: list[int]) -> None:
    _, array = parse_constant_option("x=" + ",".join(map(str, values)))

    assert array.dtype == np.int64
    assert array.tolist() == values


@given(st.text())
def test_a_constant_option_gives_a_value_or_a_sentence(text: str) -> None:
    try:
        name, array = parse_constant_option(text)
    except EdgekitError as error:
        assert error.hint
        return
    assert name
    assert array.dtype in (np.int64, np.float32, np.bool_)


def test_a_constant_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x=1.npy"
    np.save(file, np.arange(6, dtype=np.uint8).reshape(2, 3))

    name, array = parse_constant_option(f"x={file}")

    assert name == "x"
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("content", [None, b"", b"text", b"\x93NUMPY\x01\x00"])
def test_a_file_that_holds_no_numbers_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InputError):
        parse_constant_option(f"x={file}")


def test_python_objects_in_a_file_are_never_loaded(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)

    with pytest.raises(InputError):
        parse_constant_option(f"x={file}")


@pytest.mark.parametrize("value", [[], [[1], [1, 2]], "text", {"a": 1}, [1, "a"], 10**30])
def test_what_is_no_number_is_no_constant(value: object) -> None:
    assert numbers(value) is None


def _commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            nested = command.get_command(context, name)
            assert nested is not None
            found += _commands(nested, f"{path} {name}")
    return found


EVERY_COMMAND = _commands(root, "edgekit")


@pytest.mark.parametrize("path", [path for path, _ in EVERY_COMMAND])
def test_every_command_has_the_global_flags_once_and_no_clashing_option(path: str) -> None:
    command = dict(EVERY_COMMAND)[path]
    names = [name for parameter in command.params for name in parameter.opts]

    assert {"--quiet", "-q", "--verbose", "-v", "--debug", "--no-color"} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", [path for path, _ in EVERY_COMMAND])
def test_every_command_and_option_says_what_it_does(path: str) -> None:
    command = dict(EVERY_COMMAND)[path]

    assert command.help
    assert all(p.help for p in command.params if isinstance(p, click.Option))


def test_every_group_suggests_commands() -> None:
    groups = [command for _, command in EVERY_COMMAND if isinstance(command, click.Group)]

    assert all(isinstance(group, Group) for group in groups)


def test_the_table_knows_every_command_module() -> None:
    import edgekit.cli

    folder = Path(str(edgekit.cli.__file__)).parent
    modules = {f"edgekit.cli.{file.stem}" for file in folder.glob("*.py")}
    with_command = {
        name
        for name in modules - {"edgekit.cli.__init__"}
        if "\ncommand" in (text := (folder / f"{name.rpartition('.')[2]}.py").read_text())
        or "\ndef command(" in text
    }

    assert {entry.module for entry in COMMANDS} == with_command
