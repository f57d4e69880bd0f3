"""Who may know whom in edgekit, read from the source. docs/architecture.md tells the same story."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from runpy import run_path

import pytest
import tomli
from packaging.requirements import Requirement
from support.source import PACKAGE, ROOT, Import, Module, is_third_party, modules

ROOMS: tuple[str, ...] = run_path(str(ROOT / "scripts/architecture"))["ROOMS"]
"""The folders of edgekit from the ground up: one knows itself and those before it."""

AT_THE_TOP = {"__init__", "__main__", "version"}

AT_HOME: dict[str, str] = {
    "click": "cli cli.* __main__",
    "rich": "cli.progress cli.console",
    "tvm": "rpc.session rpc.tracker_worker base.tvm_compat models.onnx.* models.tflite.* "
    "models.arithmetic models.control models.integer_ends models.naming compiler.* tuning.kernels "
    "tuning.earlier_gain tuning.metaschedule tuning.scheduled_kernels tuning.filters "
    "tuning.evolution tuning.builder tuning.proposer tuning.runner "
    "backends.graph backends.match backends.matching backends.partition backends.rewrite "
    "backends.picture backends.extract "
    "backends.*.rules backends.*.rules.* backends.*.quantised "
    "aot.in_c aot.lower aot.read aot.loops aot.loops.* aot.quantised aot.quantised.* "
    "aot.native.compile aot.native.steps",
    "tvm_ffi": "base.tvm_compat devices.local.machine compiler.* tuning.kernels aot.loops.* "
    "tuning.builder tuning.filters tuning.evolution",
    "onnx": "models.onnx models.onnx.* verbs.quantization.quantiser verbs.quantization.loss "
    "backends.tensorrt.graph models.onnx_oracle testing.*",
    "onnxruntime": "models.oracle verbs.quantization.quantiser verbs.quantization.loss",
    "tflite": "models.tflite models.tflite.*",
    "ai_edge_litert": "models.oracle models.tflite.oracle_states models.tflite.oracle_custom "
    "backends.ethos_u.flatbuffer",
    "ethosu": "backends.ethos_u.*",
    "torch": "models.torch.* models.oracle models.foreign.torchscript models.foreign.keras",
    "keras": "models.foreign.keras",
    "tensorflow": "models.foreign.savedmodel",
    "onnxscript": "models.torch.*",
    "PIL": "models.images models.ends.drawing",
    "paramiko": "devices.linux.hostkeys devices.linux.ssh_config devices.linux.handshake "
    "devices.linux.connection devices.linux.remote_command devices.linux.forwarding "
    "devices.linux.match_exec devices.linux.joined_host farm.hosts.device_gate "
    "farm.hosts.line_gate fabric.connection",
    "cryptography": "registry.keys cluster.certificates",
    "dask": "cluster cluster.*",
    "distributed": "cluster cluster.*",
    "fabric": "fabric fabric.* cli.device_work",
    "invoke": "fabric.provisioning",
    "elftools": "devices.elf aot.firmware.firmware_file",
    "pycocotools": "verbs.evaluation.detection",
    "mlperf_loadgen": "verbs.mlperf.loadgen_process",
    "sqlalchemy": "store.*",
    "pynvml": "devices.sensors.nvml",
    "serial": "devices.serial.port devices.serial.unix devices.serial.link devices.serial.monitor",
}
"""Where a package may be imported; anything not listed, wherever it is useful."""

HEAVY = {
    "tvm",
    "tvm_ffi",
    "numpy",
    "onnx",
    "onnxruntime",
    "torch",
    "tflite",
    "PIL",
    "rich",
    "sqlalchemy",
    "paramiko",
    "cryptography",
    "elftools",
    "serial",
    "dask",
    "distributed",
    "fabric",
    "invoke",
}
"""What takes too long to import for a command that may need none of it."""

DISTRIBUTIONS = {
    "ai_edge_litert": "ai-edge-litert",
    "ethosu": "ethos-u-vela",
    "mlperf_loadgen": "mlcommons-loadgen",
    "ml_dtypes": "ml-dtypes",
    "onnx_ir": "onnx-ir",
    "PIL": "pillow",
    "elftools": "pyelftools",
    "google": "protobuf",
    "serial": "pyserial",
    "pynvml": "nvidia-ml-py",
    "tvm": "apache-tvm",
    "typing_extensions": "typing-extensions",
    "tvm_ffi": "apache-tvm-ffi",
}

PRINTERS = "cli cli.* __main__ base.child"
"""Modules that show, and the one that flushes before a child process ends."""

LINES_LIMIT = 500


def short(name: str) -> str:
    return name.removeprefix("edgekit").removeprefix(".")


def matches(name: str, patterns: str) -> bool:
    return any(fnmatch(short(name), pattern) for pattern in patterns.split())


def where(module: Module, found: Import) -> str:
    return f"{module.path.relative_to(ROOT)}:{found.line}"


def every_import() -> list[tuple[Module, Import]]:
    return [(module, found) for module in modules().values() for found in module.imports]


def room_of(name: str) -> str:
    """The folder of a module; the command line's for what starts it."""
    room = short(name).partition(".")[0]
    return "cli" if room == "__main__" else room


def test_every_module_lives_in_a_room() -> None:
    rooms = {room_of(name) for name in modules() if short(name)}
    loose = {short(name) for name, module in modules().items() if module.path.parent == PACKAGE}

    assert rooms - {"version"} == set(ROOMS)
    assert loose - {""} == AT_THE_TOP - {"__init__"}


@pytest.mark.parametrize("kind", ["unit", "integration"])
def test_the_tests_of_a_room_lie_in_a_folder_of_its_name(kind: str) -> None:
    folders = {path.parent.name for path in (ROOT / "tests" / kind).glob("*/test_*.py")}

    assert folders <= set(ROOMS)


def test_a_room_knows_only_itself_and_the_rooms_before_it() -> None:
    place = {room: number for number, room in enumerate(["version", *ROOMS])}
    too_high = [
        f"{where(module, found)} imports {short(found.module)}: '{own}' comes before '{other}'"
        for module, found in every_import()
        if short(module.name) and short(found.module) and found.module in modules()
        if place[other := room_of(found.module)] > place[own := room_of(module.name)]
    ]

    assert not too_high


def test_a_package_is_imported_only_where_it_is_at_home() -> None:
    strangers = [
        f"{where(module, found)} imports {found.module}"
        for module, found in every_import()
        if found.module in AT_HOME
        and not found.for_types
        and not matches(module.name, AT_HOME[found.module])
    ]

    assert not strangers


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    declared = {
        Requirement(requirement).name for requirement in chain(project["dependencies"], *extras)
    }
    undeclared = [
        f"{where(module, found)} imports {found.module}"
        for module, found in every_import()
        if is_third_party(found.module)
        and DISTRIBUTIONS.get(found.module, found.module) not in declared
    ]

    assert not undeclared


def test_no_two_modules_need_each_other() -> None:
    """Imports in functions and those for type checkers count: they need each other as well."""
    graph = {
        name: ({found.module for found in module.imports} & modules().keys()) - {name}
        for name, module in modules().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_library_never_prints() -> None:
    spoken = [
        f"{module.path.name}:{node.lineno}: {ast.unparse(node)}"
        for module in modules().values()
        if not matches(module.name, PRINTERS)
        for node in module.nodes
        if (isinstance(node, ast.Call) and ast.unparse(node.func) == "print")
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"))
    ]

    assert not spoken


def test_a_file_fits_in_a_head() -> None:
    long = {
        short(module.name): lines
        for module in modules().values()
        if (lines := len(module.path.read_text(encoding="utf-8").splitlines())) > LINES_LIMIT
    }

    assert not long


def test_parsing_a_command_line_imports_nothing_heavy() -> None:
    entrances = [name for name in modules() if matches(name, "cli cli.* __main__")]

    ways = [" -> ".join(way) for name in entrances if (way := _way_to_something_heavy(name))]
    assert not ways


def _way_to_something_heavy(start: str) -> list[str] | None:
    ways = {start: [start]}
    queue = [start]
    while queue:
        name = queue.pop(0)
        for found in modules()[name].imports:
            if not found.at_start:
                continue
            if found.module in HEAVY:
                return [*ways[name], found.module]
            for parent in _with_parents(found.module):
                if parent in modules() and parent not in ways:
                    ways[parent] = [*ways[name], parent]
                    queue.append(parent)
    return None


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def test_help_loads_nothing_heavy_in_truth() -> None:
    script = (
        "import json, sys\n"
        "from edgekit.cli.program import run_command_line\n"
        "code = run_command_line(['--help'])\n"
        "print(json.dumps([code, sorted(m for m in sys.modules if '.' not in m)]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    code, loaded = json.loads(result.stdout.splitlines()[-1])
    assert code == 0
    assert not HEAVY & set(loaded)


def test_type_checkers_are_told_that_edgekit_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


STARTERS = {
    "os": ("exec", "spawn", "posix_spawn", "system", "popen", "fork", "startfile"),
    "shutil": ("which",),
    "sys": ("executable",),
    "asyncio": ("create_subprocess",),
    "runpy": ("run_",),
}
"""What starts a program or finds one: a module, and how the names of its functions begin."""
_STARTING = ("base.children", "base.programs")


def test_processes_are_started_in_one_module() -> None:
    modules_of_processes = {"subprocess", "multiprocessing", "pty", "runpy"}
    elsewhere = [
        f"{where(module, found)} imports {found.module}"
        for module, found in every_import()
        if found.module in modules_of_processes and short(module.name) not in _STARTING
    ]
    elsewhere += [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for module in modules().values()
        if short(module.name) not in _STARTING
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr.startswith(STARTERS.get(node.value.id, ("\0",)))
    ]

    elsewhere += [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {alias.name} of {node.module}"
        for module in modules().values()
        if short(module.name) not in _STARTING
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith(STARTERS.get(node.module or "", ("\0",)))
        or alias.name == "ProcessPoolExecutor"
    ]

    assert not elsewhere, "edgekit/base/children.py starts every process"


STARTING_PARTS = {"ProxyCommand": "", "SSHConfig": "devices.linux.match_exec"}
"""What of paramiko starts processes, by its name, and where it may be used: isolated."""


def test_paramiko_starts_no_process() -> None:
    elsewhere = [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {name}"
        for module in modules().values()
        for node in module.nodes
        if (name := _name_in(node)) in STARTING_PARTS
        and not matches(module.name, STARTING_PARTS[name])
    ]

    assert not elsewhere, "it starts them in the caller's folder, with the caller's search paths"


def _name_in(node: ast.AST) -> str:
    """The name that a node uses or imports, or spells as getattr wants it."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name.rpartition(".")[2]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_files_of_the_project_that_tests_and_benchmarks_name_exist() -> None:
    named = re.compile(
        r'\bROOT((?: / "[^"]+")+)|"(tests/(?:unit|integration|support)/[\w/]+\.\w+)"'
    )
    missing = []
    for folder in ("benchmarks", "docs", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            own = path.parent if "ROOT = Path(__file__).parent\n" in text else ROOT
            for steps, whole in named.findall(text):
                name = whole or "/".join(re.findall(r'"([^"]+)"', steps))
                if not (own / name).exists():
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
