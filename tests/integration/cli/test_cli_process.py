"""The edgekit process as a shell or a script sees it: output, exit codes, signals, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import edgekit
import edgekit.cli
from edgekit.cli.program import run_command_line
from edgekit.version import __version__

EDGEKIT = (sys.executable, "-m", "edgekit")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EDGEKIT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


Raiser = Callable[[BaseException], None]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Iterator[Raiser]:
    """A command called `fail` that raises what it is given."""

    def install(error: BaseException) -> None:
        @click.command("fail")
        def command() -> None:
            """Fail."""
            raise error

        module = types.ModuleType("failing_command")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "failing_command", module)
        entry = edgekit.cli.Entry("fail", "failing_command", "Fail.")
        monkeypatch.setattr(edgekit.cli, "COMMANDS", (*edgekit.cli.COMMANDS, entry))

    yield install


def test_help_lists_every_command_on_stdout() -> None:
    result = run("--help")

    assert result.returncode == 0
    assert result.stderr == ""
    for entry in edgekit.cli.COMMANDS:
        assert f"\n  {entry.name} " in result.stdout


def test_called_bare_it_shows_its_help() -> None:
    assert run().stdout == run("--help").stdout


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"edgekit {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("inspekt",), "there is no command edgekit inspekt", "did you mean inspect?"),
        (("boards", "sho"), "there is no command edgekit boards sho", "did you mean show?"),
        (("twin", "list"), "there is no command edgekit twin list", "edgekit twin status"),
        (("inspect", "--jsn"), "no such option", "did you mean --json?"),
        (("inspect", "a.onnx", "b.onnx"), "unexpected extra argument", "edgekit inspect --help"),
        (("completion",), "missing argument 'SHELL'", "edgekit completion --help"),
        (("completion", "csh"), "'csh' is not one of", "edgekit completion --help"),
        (("inspect", "--shape", "1,2", "x.onnx"), "--shape 1,2 names no input", "--shape name="),
        (("inspect", "--shape"), "requires an argument", "see edgekit inspect --help"),
        (("cache", "prune", "--max-size"), "requires an argument", "edgekit cache prune --help"),
        (("build", "--nosuch"), "no such option", "see edgekit build --help"),
        (("build", "--no-cach"), "no such option", "did you mean --no-cache?"),
        (("deploy", "--host", "pi"), "no such option", "did you mean --device?"),
        (("bench", "--iterations", "5"), "no such option", "did you mean --runs?"),
    ],
)
def test_a_mistaken_command_line_ends_with_2_and_a_hint(
    arguments: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2

    error, hint_line = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: ")
    assert message in error
    assert hint_line.startswith("hint: ")
    assert hint in hint_line


@pytest.mark.parametrize(
    "arguments", [("inspect", "--json", "--nope"), ("inspect", "--nope", "--json")]
)
def test_with_json_even_a_mistaken_command_line_is_a_document(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2

    document = json.loads(capsys.readouterr().out)
    assert document["error"]["type"] == "UsageError"
    assert document["error"]["exit_code"] == 2


def test_an_argument_after_the_double_dash_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["inspect", "--", "--json"]) == 3

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there is no file --json" in captured.err


@pytest.mark.parametrize("arguments", [("-v", "inspect"), ("inspect", "-v")])
def test_global_flags_work_on_either_side_of_the_command(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(b"\0\0\0\0TFL3 and nothing more")

    assert run_command_line([*arguments, str(model)]) == 3
    assert "read the model: failed after" in capsys.readouterr().err


def test_an_unexpected_exception_is_called_a_bug_and_ends_with_1(
    raising: Raiser, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ValueError("unforeseen"))

    assert run_command_line(["fail"]) == 1

    captured = capsys.readouterr()
    assert "error: this is a bug in edgekit: ValueError: unforeseen" in captured.err
    assert "--debug" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [("--debug", "fail"), ("fail", "--debug")])
def test_debug_shows_the_traceback(
    arguments: tuple[str, ...], raising: Raiser, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ValueError("unforeseen"))

    run_command_line(arguments)

    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_debug_shows_no_control_characters_of_a_model(
    raising: Raiser, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ValueError("Ev\x1b]0;title\x07il"))

    run_command_line(["--debug", "fail"])

    said = capsys.readouterr().err
    assert "Ev\\x1b]0;title\\x07il" in said
    assert "\x1b]" not in said


def test_a_pipe_that_breaks_elsewhere_is_not_taken_for_a_closed_output(
    raising: Raiser, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(BrokenPipeError("the device hung up"))

    assert run_command_line(["fail"]) == 1
    assert "the device hung up" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--help",), ("completion", "bash"), ("boards",)])
def test_a_reader_that_has_gone_is_no_drama(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [*EDGEKIT, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)

    assert result.stderr == ""
    assert result.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_it_in_an_orderly_way(
    number: signal.Signals, code: int, message: str, tmp_path: Path
) -> None:
    process = waiting_process(tmp_path)

    process.send_signal(number)
    out, err = process.communicate(timeout=120)

    assert process.returncode == code
    assert err.splitlines() == [f"error: {message}"]
    assert json.loads(out)["error"]["exit_code"] == code


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    process = waiting_process(tmp_path, ignored=signal.SIGHUP)

    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)

    assert process.returncode == 143


def waiting_process(folder: Path, ignored: signal.Signals | None = None) -> subprocess.Popen[str]:
    """edgekit, reading a model that never comes."""
    model = folder / "net.onnx"
    os.mkfifo(model)
    process = subprocess.Popen(
        [*EDGEKIT, "inspect", str(model), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if ignored is None else lambda: signal.signal(ignored, signal.SIG_IGN),
    )
    writer = os.open(model, os.O_WRONLY)  # returns when edgekit has opened it to read
    os.set_inheritable(writer, False)
    _writers.append(writer)
    return process


_writers: list[int] = []


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    yield
    while _writers:
        os.close(_writers.pop())


def test_output_that_the_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    result = run("inspect", "modèle.onnx", PYTHONIOENCODING="ascii")

    assert result.returncode == 3
    assert "there is no file mod\\xe8le.onnx" in result.stderr


def test_ctrl_c_while_modules_load_ends_the_program_without_a_traceback(tmp_path: Path) -> None:
    # A module that takes its time, in the place of one that every command line needs.
    (tmp_path / "click.py").write_text("import time; print('loading', flush=True); time.sleep(60)")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [*EDGEKIT, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        # In a script's background, Ctrl-C would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()

    assert process.returncode == -signal.SIGINT, "which a shell shows as 130"
    assert said == ""


def test_ctrl_c_is_answered_before_anything_that_takes_time_is_loaded() -> None:
    before_main = "import sys; sys.path.insert(0, sys.argv[1]); known = set(sys.modules)"
    program = f"{before_main}; import edgekit.__main__; print(*sorted(set(sys.modules) - known))"
    root = str(Path(edgekit.__file__).resolve().parent.parent)
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, root],
        capture_output=True,
        text=True,
        check=True,
    )

    # A module that is built into Python is known from the start in some versions.
    loaded = set(result.stdout.split()) - {"_signal"}
    assert loaded == {"__future__", "edgekit", "edgekit.__main__", "edgekit.version"}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_disk_under_the_output_is_told_on_stderr(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*EDGEKIT, "boards", *more], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert result.returncode == 9
    assert result.stderr.startswith("error: could not write the output: no space left on device")
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_standard_streams_are_no_error(closed: str) -> None:
    command = ["sh", "-c", f'"$@" boards {closed}', "sh", *EDGEKIT]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    program = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", program, "sh", str(tmp_path / "gone"), *EDGEKIT, "boards"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 9
    assert "the folder you are in has been deleted" in result.stderr
