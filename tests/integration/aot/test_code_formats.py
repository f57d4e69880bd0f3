"""edgekit build --format: what it adds is what other people's tools can take, and works."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from support.building import request_for, run_edgekit
from support.c_networks import several_inputs
from support.cortex_m import PROCESSORS, build_elf, run_elf, run_on
from support.needs import CORTEX_M, needs

from edgekit.aot.job import WrittenTree
from edgekit.aot.packages.compiled import CompiledTree
from edgekit.aot.packages.formats import CODE_FORMATS, CodeFormat
from edgekit.aot.packages.write import write_package
from edgekit.aot.tree import Origin
from edgekit.base.errors import MissingToolError, UsageError
from edgekit.base.tensors import TensorSpec
from edgekit.building.build import build
from edgekit.bundle.folder import Bundle
from edgekit.bundle.manifest_bare_metal import BareMetal, LibraryEntry
from edgekit.cross.toolchain import find_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs(*CORTEX_M)

BOARD = "mps2-an386"
SOURCES = tuple(name for name in CODE_FORMATS if name != "energyrunner")
"""The formats that hold the C; tests/integration/devices/test_energyrunner.py has the firmware."""
PROJECTS = {
    "platformio": "examples/reference/src/reference.c",
    "esp-idf": "examples/reference/main/app_main.c",
    "zephyr": "samples/reference/src/main.c",
    "rust": "tests/reference.c",
}
"""The program of each that runs the reference inputs."""
_APP_MAIN = "void app_main(void);\nint main(void) { app_main(); return 0; }\n"
PACK = "edgekit.small.1.0.0.pack"
_ARDUINO_H = """\
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
struct Line {
  void begin(long) {}
  operator bool() const { return true; }
  void print(const char *text) { printf("%s", text); }
  void print(unsigned long number) { printf("%lu", number); }
  void print(double number, int digits) { printf("%.*f", digits, number); }
  void println(const char *text) { printf("%s\\n", text); }
};
extern Line Serial;
unsigned long micros();
unsigned long millis();
void setup();
void loop();
"""
_ARDUINO_CORE = """\
#include <Arduino.h>
Line Serial;
unsigned long micros() { return 0; }
unsigned long millis() { return 0; }
int main() { setup(); loop(); return 0; }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(several_inputs(), file)
    return file


@pytest.fixture(scope="module")
def bundles(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Bundle]:
    folder = tmp_path_factory.mktemp("bundles")
    return {name: _built(model, name, folder / name) for name in SOURCES}


def _built(model: Path, code_format: CodeFormat, out: Path) -> Bundle:
    request = replace(request_for(model, BOARD), code_format=code_format)
    return build(request, out, use_cache=False, isolated=False).bundle


def _packages(bundle: Bundle) -> list[str]:
    return [file.path for file in bundle.manifest.files if file.role == "package"]


def test_each_format_adds_its_files_and_nothing_else(bundles: Mapping[str, Bundle]) -> None:
    assert {name: _packages(bundle) for name, bundle in bundles.items()} == {
        "c": [],
        "static-lib": ["static-lib/libsmall.a", "static-lib/README.md", "static-lib/small.h"],
        "cmsis-pack": [PACK],
        "arduino": ["arduino/small.zip"],
        **{project: [f"{project}/small.zip"] for project in PROJECTS},
    }
    plain = {file.sha256 for file in bundles["c"].manifest.files}
    for bundle in bundles.values():
        assert plain <= {file.sha256 for file in bundle.manifest.files}
        assert bundle.manifest.reproducible


@pytest.mark.parametrize("code_format", ["static-lib", "cmsis-pack", "arduino", "zephyr"])
def test_the_same_build_gives_the_same_package(
    bundles: Mapping[str, Bundle], model: Path, tmp_path: Path, code_format: CodeFormat
) -> None:
    assert _built(model, code_format, tmp_path / "b").digest == bundles[code_format].digest


def test_the_static_library_computes_what_it_should(bundles: Mapping[str, Bundle]) -> None:
    folder = bundles["static-lib"].path
    sources = [folder / "c/test/test_small.c", folder / "static-lib/libsmall.a"]
    ran = run_on("m4", sources, includes=[folder / "static-lib", folder / "c/test"])
    assert ran.output.count(": ok") == len(bundles["static-lib"].manifest.outputs)


def test_the_static_library_has_members_called_after_their_sources_and_no_variables(
    bundles: Mapping[str, Bundle],
) -> None:
    library = bundles["static-lib"].path / "static-lib/libsmall.a"
    listed = _run(["arm-none-eabi-nm", str(library)])
    assert "small.o:" in listed
    assert re.search(r" T small_run$", listed, re.MULTILINE)
    assert not re.search(r" [BDbd] ", listed)


def test_the_pack_has_what_the_standard_demands(
    bundles: Mapping[str, Bundle], tmp_path: Path
) -> None:
    package, files = _unpacked(bundles["cmsis-pack"].path / PACK, tmp_path)
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.get("schemaVersion", ""))
    vendor, name = package.findtext("vendor"), package.findtext("name")
    release = package.find("releases/release")
    assert release is not None
    assert f"{vendor}.{name}.{release.get('version')}.pack" == PACK
    assert f"{vendor}.{name}.pdsc" in files
    assert package.findtext("description")
    assert package.find("url") is not None
    conditions = {item.get("id") for item in package.iterfind("conditions/condition")}
    (component,) = package.iterfind("components/component")
    assert component.get("condition") in conditions
    for key in ("Cclass", "Cgroup", "Csub"):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_ ]{1,31}", component.get(key, ""))
    assert re.fullmatch(r"\d+\.\d+\.\d+", component.get("Cversion", ""))
    named = [file.get("name", "") for file in component.iterfind("files/file")]
    assert set(named) <= files
    assert {"small.h", "small.c"} <= set(named)
    assert not any(path.startswith("test/") for path in files)


def test_the_packs_sources_compile(bundles: Mapping[str, Bundle], tmp_path: Path) -> None:
    package, _ = _unpacked(bundles["cmsis-pack"].path / PACK, tmp_path)
    sources = [f.get("name", "") for f in package.iter("file") if f.get("category") == "source"]
    for source in sources:
        _compile_c(tmp_path / source, (tmp_path,), tmp_path / "made.o")


def test_the_arduino_sketch_runs_the_reference_inputs(
    bundles: Mapping[str, Bundle], tmp_path: Path
) -> None:
    """The sketch runs on the processor, with an Arduino.h that writes to the emulator's console."""
    with zipfile.ZipFile(bundles["arduino"].path / "arduino/small.zip") as archive:
        archive.extractall(tmp_path)
    output = _sketch_output(tmp_path / "small", "small", tmp_path)
    assert output.count(": ok") == len(bundles["arduino"].manifest.outputs)
    assert "all as expected" in output


def test_the_sketch_notices_a_wrong_result(bundles: Mapping[str, Bundle], tmp_path: Path) -> None:
    with zipfile.ZipFile(bundles["arduino"].path / "arduino/small.zip") as archive:
        archive.extractall(tmp_path)
    vectors = tmp_path / "small/examples/small/vectors.h"
    text = vectors.read_text()
    begin = text.index("{", text.index("expected_0")) + 1
    end = text.index(",", begin)
    vectors.write_text(f"{text[:begin]} 1000{text[end:]}")
    assert "NOT as expected" in _sketch_output(tmp_path / "small", "small", tmp_path)


@pytest.mark.parametrize("project", PROJECTS)
def test_the_part_of_a_project_runs_the_reference_inputs(
    project: str, bundles: Mapping[str, Bundle], tmp_path: Path
) -> None:
    with zipfile.ZipFile(bundles[project].path / project / "small.zip") as archive:
        archive.extractall(tmp_path)
    root = tmp_path / "small"
    sources = [*root.glob("src/*.c"), root / PROJECTS[project]]
    if project == "esp-idf":
        (tmp_path / "shim.c").write_text(_APP_MAIN)
        sources.append(tmp_path / "shim.c")

    output = run_on("m4", sources, includes=[root / "src"]).output

    assert output.count(": ok") == len(bundles[project].manifest.outputs)
    assert "NOT" not in output
    gaps = [path for path in root.rglob("*") if path.is_file() and b"{{" in path.read_bytes()]
    assert not gaps, "every gap of a template is filled"


@needs("cmake")
@pytest.mark.parametrize(
    ("project", "file", "command"),
    [
        ("esp-idf", "CMakeLists.txt", "idf_component_register"),
        ("zephyr", "zephyr/CMakeLists.txt", "zephyr_library_sources"),
    ],
)
def test_a_project_lists_the_sources_that_it_has(
    project: str, file: str, command: str, bundles: Mapping[str, Bundle], tmp_path: Path
) -> None:
    with zipfile.ZipFile(bundles[project].path / project / "small.zip") as archive:
        archive.extractall(tmp_path)
    root = tmp_path / "small"
    others = ("target_compile_options", "zephyr_include_directories", "zephyr_library_named")
    script = [f"function({name})\nendfunction()" for name in (*others, "zephyr_library")]
    script += ["function(zephyr_library_compile_options)\nendfunction()"]
    script += [f'function({command})\n  message("${{ARGN}}")\nendfunction()']
    script += ["set(CONFIG_SMALL y)", f"include({root / file})"]
    (tmp_path / "listed.cmake").write_text("\n".join(script))

    said = subprocess.run(
        ["cmake", "-P", str(tmp_path / "listed.cmake")], capture_output=True, text=True, check=True
    )

    listed = re.findall(r"[^;\s]+\.c\b", said.stderr)
    assert listed
    assert all((root / (root / file).parent / name).is_file() for name in listed)


@needs("rust")
def test_the_crate_compiles_its_c_and_passes_its_test(
    bundles: Mapping[str, Bundle], tmp_path: Path
) -> None:
    with zipfile.ZipFile(bundles["rust"].path / "rust/small.zip") as archive:
        archive.extractall(tmp_path)

    # The home of the tests has no settings of rustup.
    rustup = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    own = {"RUSTUP_HOME": str(rustup), **os.environ} if rustup.is_dir() else None
    done = subprocess.run(
        ["cargo", "test", "--offline", "--features", "reference"],
        cwd=tmp_path / "small",
        env=own,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the_outputs_are_the_expected_ones ... ok" in done.stdout


def test_the_arduino_library_says_what_it_is(bundles: Mapping[str, Bundle]) -> None:
    with zipfile.ZipFile(bundles["arduino"].path / "arduino/small.zip") as archive:
        lines = archive.read("small/library.properties").decode().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert properties["name"] == "small"
    assert properties["includes"] == "small.h"
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])
    needed = ("author", "maintainer", "sentence", "paragraph", "category", "architectures")
    assert all(properties[key] for key in needed)
    assert "url" in properties


def test_a_librarys_files_are_found_in_every_package(tmp_path: Path) -> None:
    compiled = _with_library(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    for code_format in SOURCES:
        (tmp_path / f"scratch-{code_format}").mkdir()
        write_package(code_format, compiled, out, tmp_path / f"scratch-{code_format}")
    with zipfile.ZipFile(out / "arduino/net.zip") as archive:
        archive.extractall(tmp_path / "arduino")
    source = tmp_path / "arduino/net/src"
    for path in source.rglob("*.c"):
        _compile_c(path, (source,), tmp_path / "made.o")
    assert (tmp_path / "arduino/net/LICENSES/kernels.txt").is_file()
    assert (out / "static-lib/LICENSES/kernels.txt").is_file()
    members = _run(["arm-none-eabi-ar", "t", str(out / "static-lib/libnet.a")])
    assert members.split() == ["net.o", "1_net.o"]
    package, files = _unpacked(out / "edgekit.net.1.0.0.pack", tmp_path / "pack")
    license_ = package.find("licenseSets/licenseSet/license")
    assert license_ is not None
    assert license_.get("name") in files
    assert license_.get("spdx") == "Apache-2.0"
    kinds = {f.get("name"): f.get("category") for f in package.iter("file")}
    assert kinds["lib/kernels/Include/"] == "include"
    assert kinds["lib/kernels/Source/net.c"] == "source"
    for name, kind in kinds.items():
        if kind == "source":
            folders = (tmp_path / "pack", tmp_path / "pack/lib/kernels/Include")
            _compile_c(tmp_path / "pack" / str(name), folders, tmp_path / "made.o")


def test_a_format_for_a_board_that_loads_libraries_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--format") as caught:
        build(replace(request_for(model), code_format="arduino"), tmp_path / "b")
    assert "bare-metal" in (caught.value.hint or "")
    ran = run_edgekit("build", str(model), "--format", "deb", folder=tmp_path)
    assert ran.code == 2
    assert "static-lib" in ran.err


@pytest.mark.parametrize("archiver", [None, "arm-none-eabi-nosuch-ar"])
def test_a_toolchain_without_an_archiver_makes_no_static_library(
    model: Path, tmp_path: Path, archiver: str | None
) -> None:
    request = replace(request_for(model, BOARD), code_format="static-lib")
    tools = replace(request.toolchain.tools, ar=archiver)
    with pytest.raises(MissingToolError) as caught:
        build(replace(request, toolchain=replace(request.toolchain, tools=tools)), tmp_path / "b")
    assert caught.value.hint
    assert not (tmp_path / "b").exists()


def _with_library(folder: Path) -> CompiledTree:
    """A tree whose kernels are a third party's, with a source of the same name."""
    files = {
        "README.md": "net\n",
        "net.h": "#define NET_ARENA_BYTES 16\n#define NET_ARENA_ALIGNMENT 16\nint net_run(void);\n",
        "net_weights.h": "",
        "net.c": '#include "net.h"\n#include "kernels.h"\nint net_run(void) { return kernel(); }\n',
        "lib/kernels/Include/kernels.h": '#include "Internal/more.h"\n',
        "lib/kernels/Include/Internal/more.h": "int kernel(void);\n",
        "lib/kernels/Source/net.c": '#include "kernels.h"\nint kernel(void) { return 1; }\n',
        "LICENSES/kernels.txt": "anybody may use it\n",
        "test/vectors.h": "#include <stdint.h>\n",
        "test/test_net.c": "",
    }
    for path, text in files.items():
        (folder / "c" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "c" / path).write_text(text)
    report = BareMetal(
        name="net",
        arena_bytes=16,
        arena_bound=16,
        arena_note="",
        constant_bytes=0,
        flash_bytes=4,
        stack_bytes=8,
        firmware_flash=0,
        firmware_ram=0,
        steps=(),
        buffers=(),
        libraries=(LibraryEntry("kernels", "1", "Apache-2.0"),),
    )
    board = load_board(BOARD)
    toolchain = load_toolchain(board.toolchain)
    sources = ("net.c", "lib/kernels/Source/net.c")
    includes = (".", "lib/kernels/Include")
    objects = tuple(folder / f"c-{index}.o" for index in range(len(sources)))
    for source, made in zip(sources, objects, strict=True):
        _compile_c(folder / "c" / source, [folder / "c" / include for include in includes], made)
    ends: tuple[TensorSpec, ...] = ()
    tree = WrittenTree(
        folder / "c",
        Origin("net", "net.onnx", "0", BOARD, "Cortex-M4"),
        ends,
        ends,
        sources,
        includes,
        report,
    )
    flags = PROCESSORS["m4"].flags
    compiler = find_compiler(toolchain)
    return CompiledTree(tree, report, "a" * 64, board, toolchain, compiler, flags, objects)


def _sketch_output(library: Path, name: str, scratch: Path) -> str:
    core = scratch / "core"
    core.mkdir()
    (core / "Arduino.h").write_text(_ARDUINO_H)
    (core / "core.cpp").write_text(_ARDUINO_CORE)
    sketch = library / "examples" / name / f"{name}.ino"
    objects = []
    for source in (sketch, core / "core.cpp"):
        objects.append(scratch / f"{source.stem}.o")
        flags = ("-std=gnu++11", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror")
        includes = [f"-I{folder}" for folder in (library / "src", core)]
        command = ["arm-none-eabi-g++", "-mthumb", *PROCESSORS["m4"].flags, "-Os", *flags]
        _run([*command, *includes, "-x", "c++", "-c", str(source), "-o", str(objects[-1])])
    for index, source in enumerate(sorted((library / "src").rglob("*.c"))):
        objects.append(scratch / f"source-{index}.o")
        _compile_c(source, (library / "src",), objects[-1])
    return run_elf("m4", build_elf("m4", objects, scratch)).output


def _compile_c(source: Path, includes: list[Path] | tuple[Path, ...], made: Path) -> None:
    command = ["arm-none-eabi-gcc", "-mthumb", *PROCESSORS["m4"].flags, "-std=gnu11", "-Os"]
    folders = [f"-I{folder}" for folder in includes]
    _run([*command, "-Wall", "-Werror", *folders, "-c", str(source), "-o", str(made)])


def _unpacked(pack: Path, folder: Path) -> tuple[ElementTree.Element, set[str]]:
    with zipfile.ZipFile(pack) as archive:
        archive.extractall(folder)
        names = set(archive.namelist())
    (description,) = (name for name in names if name.endswith(".pdsc"))
    return ElementTree.parse(folder / description).getroot(), names


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
