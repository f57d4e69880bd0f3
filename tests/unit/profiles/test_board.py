from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.profiles import BAREMETAL_BOARD, LINUX_BOARD, machine_without_profiles, write_profile

from edgekit.base.errors import ProfileError
from edgekit.base.paths import built_in_profiles
from edgekit.devices.linux.preflight import required_features
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import Board, board_names, check_board, load_board, parse_board
from edgekit.profiles.reader import Problem, load_profile

BUILT_IN = sorted(path.stem for path in built_in_profiles("boards").glob("*.toml"))
LINUX = [
    path.stem
    for path in built_in_profiles("boards").glob("*.toml")
    if tomli.loads(path.read_text())["kind"] == "linux"
]
PROMISED = {
    "local", "rpi3", "rpi4", "rpi5", "jetson-orin", "jetson-xavier", "beagleplay",
    "stm32f746g-disco", "stm32h747i-disco", "nrf52840-dk",
    "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547",
    "microbit", "qemu-riscv32", "microbit-v2", "rp2040", "rp2350", "rp2350-riscv",
    "nrf5340-dk", "esp32-c3", "ek-ra8d1",
}  # fmt: skip


WITHOUT_TWIN = {
    "alif-e7",
    "corstone-320",
    "ek-ra8d1",
    "esp32-c3",
    "generic-x86-64-v3",
    "rp2040",
    "rp2350-riscv",
}


def _load(path: Path) -> Board:
    return load_profile(path, "boards", parse_board)


def test_every_promised_board_is_there() -> None:
    assert set(BUILT_IN) >= PROMISED
    assert set(board_names()) >= PROMISED


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_boards_are_sound(name: str) -> None:
    assert check_board(built_in_profiles("boards") / f"{name}.toml") == ()
    board = load_board(name)
    assert board.name == name
    assert set(board.offload.default) <= set(board.offload.allowed)
    without = ("local", "webassembly")
    assert board.kind in without or board.twin is not None or name in WITHOUT_TWIN


@pytest.mark.parametrize("name", LINUX)
def test_code_for_a_board_uses_only_what_the_board_has(name: str) -> None:
    board = load_board(name)
    known = architectures()[board.cpu.arch]
    used = set(known.required(board.target.cpu, board.target.features))
    assert used <= set(board.cpu.features)


_OF_MACHINE = {"netduinoplus2": "stm32f405", "virt": "qemu-riscv32"}


def test_every_twin_of_a_microcontroller_has_a_profile_of_its_own_memory() -> None:
    for name in BUILT_IN:
        board = load_board(name)
        if board.kind == "baremetal" and board.twin:
            twin = load_board(_OF_MACHINE.get(board.twin.machine, board.twin.machine))
            assert twin.target.cpu == board.target.cpu
            assert set(twin.cpu.features) >= set(board.cpu.features)
            assert twin.twin is not None
            assert twin.twin.clock == board.twin.clock


def test_a_linux_board_says_all_that_is_asked_of_it(tmp_path: Path) -> None:
    board = _load(write_profile(tmp_path, "mine", LINUX_BOARD))
    assert (board.name, board.kind, board.toolchain) == ("mine", "linux", "aarch64-linux-gnu")
    assert (board.cpu.arch, board.cpu.cores) == ("aarch64", 4)
    assert json.loads(board.target.as_json()) == {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "cortex-a72",
        "mattr": ["+neon", "-aes"],
        "num-cores": 4,
    }
    assert (board.memory.ram, board.memory.flash) == (2 << 30, None)
    assert (board.transport.kind, board.transport.baud) == ("ssh", None)
    assert board.twin is not None
    assert (board.twin.machine, board.twin.memory) == ("virt", 1 << 30)


GPU = '[gpu]\narch = "sm_87"\ncuda = 13\n\n[offload]'
ON_GPU = LINUX_BOARD.replace('"-aes"]', '"-aes"]\nrest = "cuda"').replace(
    'default = ["ncnn"]\nallowed = ["ncnn", "acl"]', 'default = []\nallowed = ["tensorrt"]'
)


def test_the_rest_of_a_model_runs_on_the_gpu_where_a_board_says_so(tmp_path: Path) -> None:
    board = _load(write_profile(tmp_path, "mine", ON_GPU.replace("[offload]", GPU)))
    limits = board.target.gpu
    assert limits is not None
    assert (limits.language, limits.arch, limits.threads) == ("cuda", "sm_87", 1024)
    plain = _load(write_profile(tmp_path, "mine", LINUX_BOARD.replace("[offload]", GPU)))
    assert plain.target.gpu is None, "the CPU is the default"
    assert required_features(board.target.as_json(), "aarch64") == required_features(
        plain.target.as_json(), "aarch64"
    )


def test_jetpack_5_and_6_keep_the_rest_on_the_cpu_and_are_told_why(tmp_path: Path) -> None:
    for cuda in (11, 12):
        gpu = GPU.replace("13", str(cuda))
        path = write_profile(tmp_path, "mine", ON_GPU.replace("[offload]", gpu))
        (problem,) = check_board(path)
        assert problem.key == "target.rest"
        assert "the driver of CUDA 13" in problem.expected
    assert load_board("jetson-orin").target.gpu is None
    jetpack_7 = load_board("jetson-orin-jp7").target.gpu
    assert jetpack_7 is not None
    assert jetpack_7.arch == "sm_87"


def test_a_microcontroller_says_where_its_memory_is(tmp_path: Path) -> None:
    board = _load(write_profile(tmp_path, "mcu", BAREMETAL_BOARD))
    assert [(r.name, r.start, r.size, r.use) for r in board.memory.regions] == [
        ("flash", 0x0800_0000, 256 << 10, "code"),
        ("ram", 0x2000_0000, 64 << 10, "data"),
    ]
    assert (board.transport.kind, board.transport.baud) == ("serial", 115200)
    assert json.loads(board.target.as_json()) == {"kind": "c", "mcpu": "cortex-m4"}
    assert board.twin is None


def test_this_machine_is_a_board_with_its_own_cpu() -> None:
    board = load_board("local")
    assert board.kind == "local"
    assert board.target.triple.startswith(board.cpu.arch)
    assert board.target.cores == board.cpu.cores >= 1
    assert board.memory.ram > 1 << 20


MISTAKES = [
    (LINUX_BOARD, "[memory]\n", "[memroy]\n", "memroy", "memory"),
    (LINUX_BOARD, '"linux"', '"linus"', "kind", "linux"),
    (LINUX_BOARD, 'cpu = "cortex-a72"\nfeatures', 'cpu = "cortex-72"\nfeatures', "target.cpu",
     "cortex-a72"),
    (LINUX_BOARD, '"+neon"', '"neon"', "target.features", "+neon"),
    (LINUX_BOARD, '"asimd"', '"asmid"', "cpu.features", "asimd"),
    (LINUX_BOARD, 'default = ["ncnn"]', 'default = ["ncn"]', "offload.default", "ncnn"),
    (LINUX_BOARD, 'default = ["ncnn"]', 'default = ["tensorrt"]', "offload.default", None),
    (LINUX_BOARD, '"aarch64-linux-gnu"\n\n', '"aarch64-linux"\n\n', "toolchain",
     "aarch64-linux-gnu"),
    (LINUX_BOARD, '"ssh"', '"serial"', "transport.kind", None),
    (LINUX_BOARD, '"2 GiB"', '"2 GB"', "memory.ram", None),
    (LINUX_BOARD, 'ram = "2 GiB"', 'ram = "2 GiB"\nflash = "1 MiB"', "memory.flash", None),
    (ON_GPU, '"-mcpu', '"-mcpu', "target.rest", None),
    (ON_GPU.replace("[offload]", GPU), "sm_87", "87", "gpu.arch", None),
    (ON_GPU.replace("[offload]", GPU), "cuda = 13", "cuda = 1", "gpu.cuda", None),
    (ON_GPU.replace("[offload]", GPU), '"cuda"', '"cudda"', "target.rest", "cuda"),
    (LINUX_BOARD, "https://example", "http://example", "vendor_url", None),
    (LINUX_BOARD, "cores = 4", "cores = 0", "cpu.cores", None),
    (LINUX_BOARD, "-mcpu=cortex-a72", "; rm -rf /", "cpu.compile_flags", None),
    (LINUX_BOARD, '"virt"', '"virt,dumpdtb=/etc/x"', "twin.machine", None),
    (LINUX_BOARD, 'arch = "aarch64"', 'arch = "cortex-m"', "cpu.arch", None),
    (BAREMETAL_BOARD, 'ram = "64 KiB"', 'ram = "65 KiB"', "memory.ram", None),
    (BAREMETAL_BOARD, "0x20000000", "0x08001000", "memory.region", None),
    (BAREMETAL_BOARD, "0x20000000", "0x120000000", "memory.region.1.start", None),
    (BAREMETAL_BOARD, "0x20000000", "0xffff8000", "memory.region.1.size", None),
    (BAREMETAL_BOARD, 'name = "ram"', 'name = "flash"', "memory.region", None),
    (BAREMETAL_BOARD, 'use = "data"', 'use = "dada"', "memory.region.1.use", "data"),
    (BAREMETAL_BOARD, "baud = 115200", "baud = 115200.0", "transport.baud", None),
    (BAREMETAL_BOARD, "baud = 115200", "baud = 110", "transport.baud", None),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "right", "wrong", "key", "nearest"), MISTAKES)
def test_a_mistake_is_named_with_its_line_and_what_was_meant(
    tmp_path: Path, profile: str, right: str, wrong: str, key: str, nearest: str | None
) -> None:
    assert right in profile
    text = profile.replace(right, wrong, 1)
    problems = check_board(write_profile(tmp_path, "mine", text))
    problem = next((p for p in problems if p.key == key), None)
    assert problem is not None, problems
    assert problem.nearest == nearest
    assert 1 <= problem.line <= text.count("\n") + 1


def test_memory_regions_may_touch_each_other_and_the_end_of_the_address_space(
    tmp_path: Path,
) -> None:
    for start in ("0x08040000", "0xffff0000"):
        text = BAREMETAL_BOARD.replace("0x20000000", start)
        assert check_board(write_profile(tmp_path, "mine", text)) == ()


def test_memory_regions_that_overlap_are_found_in_any_order(tmp_path: Path) -> None:
    """RAM from below into flash, though the file lists flash first."""
    text = BAREMETAL_BOARD.replace("0x20000000", "0x07ff8000")
    (problem,) = check_board(write_profile(tmp_path, "mine", text))
    assert problem.found == '"ram" reaching into "flash"'


def test_the_line_is_the_right_one(tmp_path: Path) -> None:
    text = LINUX_BOARD.replace('"ncnn", "acl"', '"ncnn", "alc"')
    number = text.split("\n").index('allowed = ["ncnn", "alc"]') + 1
    (problem,) = check_board(write_profile(tmp_path, "mine", text))
    assert (problem.line, problem.key, problem.found) == (number, "offload.allowed", '"alc"')


def test_all_problems_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = LINUX_BOARD.replace("4\n", "0\n").replace('"2 GiB"', '"2"').replace("ssh", "shs")
    path = write_profile(tmp_path, "mine", text)
    problems = check_board(path)
    assert [p.key for p in problems] == ["cpu.cores", "memory.ram", "transport.kind"]
    with pytest.raises(ProfileError) as caught:
        _load(path)
    assert caught.value.details == tuple(str(p) for p in problems)


def test_a_wrong_kind_causes_no_further_complaints(tmp_path: Path) -> None:
    for profile in (LINUX_BOARD, BAREMETAL_BOARD):
        kind = tomli.loads(profile)["kind"]
        path = write_profile(tmp_path, "mine", profile.replace(f'"{kind}"', '"what"'))
        assert [p.key for p in check_board(path)] == ["kind"]


def test_a_board_may_not_say_what_is_found_on_the_machine(tmp_path: Path) -> None:
    text = (built_in_profiles("boards") / "local.toml").read_text()
    path = write_profile(tmp_path, "local", text + '\n[memory]\nram = "1 GiB"\n')
    assert [p.key for p in check_board(path)] == ["memory"]


def test_an_own_profile_replaces_the_built_in_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = machine_without_profiles(monkeypatch, tmp_path)
    assert load_board("rpi4", work).origin.parent == built_in_profiles("boards")
    mine = write_profile(work / "boards", "rpi4", LINUX_BOARD)
    assert load_board("rpi4", work).origin == mine
    assert load_board("rpi4", work).title == "A board"


def _problems_of(tmp_path: Path, data: bytes) -> tuple[Problem, ...]:
    path = tmp_path / "any.toml"
    path.write_bytes(data)
    try:
        _load(path)
    except ProfileError as error:
        assert error.hint
        return check_board(path)
    return ()


@settings(max_examples=examples(200))
@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_board_or_a_profile_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    assert _problems_of(tmp_path_factory.mktemp("any"), data)


_pieces = st.sampled_from([*LINUX_BOARD.split("\n"), *BAREMETAL_BOARD.split("\n")])
_noise = st.sampled_from(
    ["[cpu]", "[[cpu]]", "x = []", "= 3", '"', "[memory.region]", "cores = nan"]
)


@settings(max_examples=examples(200))
@given(lines=st.lists(_pieces | _noise, max_size=40))
def test_any_shuffle_of_a_profile_is_a_board_or_a_profile_error(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    _problems_of(tmp_path_factory.mktemp("any"), "\n".join(lines).encode())


@settings(max_examples=examples(200))
@given(where=st.integers(0, len(LINUX_BOARD) - 1), letter=st.characters())
def test_any_changed_letter_is_a_board_or_a_profile_error(
    tmp_path_factory: pytest.TempPathFactory, where: int, letter: str
) -> None:
    text = LINUX_BOARD[:where] + letter + LINUX_BOARD[where + 1 :]
    _problems_of(tmp_path_factory.mktemp("any"), text.encode("utf-8", "surrogatepass"))
