"""An exported application on an emulated Raspberry Pi 4 with systemd: cross-compiled, installed as
its README says, run once, run as a service, killed, run again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.building import request_for, write_model
from support.exports import built, checked
from support.needs import TWIN, needs
from support.rpc_lab import eventually
from support.twins import COMMAND_SECONDS, edgekit_json, on_twin, share_images, twins_in

from edgekit.building.build import build
from edgekit.profiles.board import load_board
from edgekit.twin.access import Access
from edgekit.twin.machine import StartOptions, up
from edgekit.twin.systemd import systemd_recipe

pytestmark = [pytest.mark.slow, needs(*TWIN, "cmake")]

NAME = "tiny-model"
SHOW = f"systemctl show {NAME} -p MainPID --value"


@dataclass(frozen=True)
class Installed:
    app: Path
    access: Access

    def say(self, command: str) -> str:
        return on_twin(self.access, command).strip()

    def journal(self) -> str:
        return self.say(f"sudo journalctl -u {NAME} -o cat")

    def tells(self, *words: str) -> bool:
        """Whether the service has said all of it."""
        journal = self.journal()
        return all(word in journal for word in words)

    def sees(self, path: str) -> bool:
        return self.say(f"test -e {path} && echo yes || echo no") == "yes"

    def assert_as_expected(self, remote: str, folder: Path) -> None:
        """Whether the array in a file on the twin is the oracle's."""
        (folder / "found.npy").write_bytes(
            subprocess.run(
                self.access.command(f"cat {remote}"),
                capture_output=True,
                check=True,
                timeout=COMMAND_SECONDS,
            ).stdout
        )
        expected = np.load(self.app / "sample" / "expected-0.npy")
        np.testing.assert_allclose(np.load(folder / "found.npy"), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("export")
    build(request_for(write_model(place / "tiny.onnx"), "rpi4"), place / "bundle", isolated=False)
    app = place / "app"
    report = edgekit_json("export", str(place / "bundle"), "-o", str(app))
    assert (report["program"], report["toolchain"]) == (NAME, "aarch64-linux-gnu")
    assert report["model"] < 100_000
    assert "warning" not in built(app)
    checked(("sh", "-c", "DESTDIR=build/stage cmake --install build"), app)
    share_images(place / "cache", systemd_recipe())
    with twins_in(place / "cache"):
        access = up("shed", load_board("rpi4"), StartOptions(init="systemd"), limit_s=900).access
        send(app, access, "-C build/stage -c opt etc", "sudo tar -C / -x --no-same-owner")
        send(app, access, "-c sample", "tar -x")
        on_twin(access, f"sudo systemctl daemon-reload && sudo systemctl enable --now {NAME}")
        yield Installed(app, access)


def send(app: Path, access: Access, packing: str, unpacking: str) -> None:
    packed = subprocess.run(["tar", *packing.split()], cwd=app, capture_output=True, check=True)
    command = access.command(f"{unpacking} --no-overwrite-dir")
    subprocess.run(command, input=packed.stdout, check=True, timeout=COMMAND_SECONDS)


def ask(board: Installed, name: str) -> None:
    folder = f"/run/{NAME}/in"
    eventually(lambda: board.sees(folder))
    board.say(
        f"sudo cp sample/input-0.npy {folder}/.{name} && sudo mv {folder}/.{name} {folder}/{name}"
    )


def test_it_computes_over_there_what_the_oracle_does(board: Installed, tmp_path: Path) -> None:
    said = board.say(f"/opt/{NAME}/bin/{NAME} --once sample/input-0.npy --out out --repeat 3")
    assert "median of 3 runs" in said
    board.assert_as_expected("out/output-0.npy", tmp_path)


def test_systemd_over_there_finds_nothing_wrong_with_the_unit(board: Installed) -> None:
    unit = f"/etc/systemd/system/{NAME}.service"
    said = board.say(f"sudo systemd-analyze verify --man=no {unit} 2>&1; echo ended with $?")
    assert said == "ended with 0"
    memory = load_board("rpi4").memory.ram
    assert board.say(f"sudo systemctl show {NAME} -p MemoryMax --value") == str(memory)


def test_the_service_answers_as_nobody_in_particular(board: Installed, tmp_path: Path) -> None:
    ask(board, "a.npy")
    eventually(lambda: board.sees(f"/run/{NAME}/out/a.npy"))
    board.assert_as_expected(f"/run/{NAME}/out/a.npy/output-0.npy", tmp_path)
    assert board.say(f"sudo systemctl is-active {NAME}") == "active"
    # It tells of an answer after it has given it.
    eventually(lambda: board.tells("tiny loaded in", "a.npy: ", "features float32[1, 4, 8, 8]"))
    assert int(board.say(f"stat -c %u /run/{NAME}")) >= 61184, (
        "the first of systemd's dynamic users"
    )


def test_a_killed_service_is_there_again_and_answers(board: Installed, tmp_path: Path) -> None:
    before = board.say(f"sudo {SHOW}")
    board.say(f"sudo systemctl kill -s KILL {NAME}")
    eventually(lambda: board.say(f"sudo {SHOW}") not in ("0", before))
    ask(board, "again.npy")
    eventually(lambda: board.sees(f"/run/{NAME}/out/again.npy"))
    board.assert_as_expected(f"/run/{NAME}/out/again.npy/output-0.npy", tmp_path)
    assert board.say(f"sudo systemctl show {NAME} -p NRestarts --value") == "1"


def test_a_group_may_be_let_in(board: Installed, tmp_path: Path) -> None:
    refused = f"cp sample/input-0.npy /run/{NAME}/in/mine.npy 2>/dev/null || echo refused"
    assert board.say(refused) == "refused"
    drop_in = f"/etc/systemd/system/{NAME}.service.d"
    text = "[Service]\\nGroup=edgekit\\nUMask=0002\\n"
    board.say(f"sudo mkdir -p {drop_in}; printf '{text}' | sudo tee {drop_in}/in.conf >/dev/null")
    board.say(f"sudo systemctl daemon-reload; sudo systemctl restart {NAME}")
    eventually(lambda: board.say(f"test -w /run/{NAME}/in && echo yes || echo no") == "yes")
    board.say(f"cp sample/input-0.npy /run/{NAME}/in/mine.npy")
    eventually(lambda: board.sees(f"/run/{NAME}/out/mine.npy"))
    board.assert_as_expected(f"/run/{NAME}/out/mine.npy/output-0.npy", tmp_path)


def test_it_stops_in_good_order(board: Installed) -> None:
    board.say(f"sudo systemctl stop {NAME}")
    assert board.say(f"sudo systemctl show {NAME} -p Result --value") == "success"
    eventually(lambda: "stopped" in board.journal().splitlines())
    assert not board.sees(f"/run/{NAME}")
