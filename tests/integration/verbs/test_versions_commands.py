"""versions, rollback, logs and clean, as a person types them, with a real SSH server behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.building import Ran, command_line, environment, run_edgekit, write_model
from support.local_bundles import copied, resealed, with_c_library, with_patched_kernels
from support.needs import needs
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import VerificationError
from edgekit.bundle.folder import open_bundle
from edgekit.devices.linux.ssh import SshDevice
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.deploy import DeployPlan, deploy_bundle

pytestmark = needs("sshd")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, server: SshServer) -> Path:
    """A user's home with two versions of one model deployed to `desk`: first loud, then quiet."""
    folder = tmp_path_factory.mktemp("user")
    (folder / ".git").mkdir()
    ran = edgekit(
        folder, "device", "add", "desk", f"{server.user}@127.0.0.1:{server.port}",
        "--board", "local", "--key", server.key, "--fingerprint", server.fingerprint,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    for scale in (0.4, 0.1):
        write_model(folder / "model.onnx", scale)
        words = ("deploy", "model.onnx", "--board", "local", "--device", "desk")
        ran = edgekit(folder, *words, "-o", f"bundle-{scale}")
        assert ran.code == 0, ran.err
    return folder


def edgekit(home: Path, *arguments: str) -> Ran:
    return run_edgekit(*arguments, folder=home, extra=user(home))


def user(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "SSH_AUTH_SOCK": "",
    }


def digest_of(home: Path, scale: float) -> str:
    return open_bundle(home / f"bundle-{scale}").digest


def current(server: SshServer) -> str:
    return (server.root / "deployments/model/current").readlink().name


def entries(home: Path, *more: str) -> list[dict[str, object]]:
    """The log, once all of what was sent has arrived in it."""
    ran = edgekit(home, "logs", "--device", "desk", "--json", *more)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["entries"]
    assert isinstance(found, list)
    return found


def test_versions_are_listed_with_what_is_known_of_them(home: Path, server: SshServer) -> None:
    listed = json.loads(edgekit(home, "versions", "--device", "desk", "--json").out)
    shown = edgekit(home, "versions").out

    newest, older = listed["versions"]
    assert newest["record"]["digest"] == digest_of(home, 0.1) == current(server)
    assert older["record"]["digest"] == digest_of(home, 0.4) == newest["before"]
    assert (newest["current"], older["current"]) == (True, False)
    assert newest["record"]["verified"] is True
    assert newest["record"]["median"] > 0
    assert digest_of(home, 0.1)[:12] in shown
    assert shown.count("current") == 1


def test_rollback_goes_back_and_forth_and_the_files_are_proven_first(
    home: Path, server: SshServer
) -> None:
    loud, quiet = digest_of(home, 0.4), digest_of(home, 0.1)

    back = edgekit(home, "rollback", "model", "--device", "desk", "--json")
    assert back.code == 0, back.err
    report = json.loads(back.out)
    assert current(server) == loud == report["version"]["record"]["digest"]
    assert report["before"] == quiet
    assert report["seconds"] > 0

    refused = edgekit(home, "rollback", "--device", "desk")
    assert refused.code == 2
    assert "no version of model before the current one" in refused.err
    assert quiet[:12] in refused.err

    assert edgekit(home, "rollback", "--device", "desk", "--to", quiet[:8]).code == 0
    assert current(server) == quiet
    (last,) = entries(home, "-n", "1")
    assert (last["event"], last["digest"], last["failed"]) == ("rolled back", quiet, False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "abc"), "not the beginning"),
        (("--to", "../../x"), "not the beginning"),
        (("--to", "0000000"), "no version 0000000"),
        (("modle",), "no model 'modle'"),
        (("--device", "local"), "local is this machine"),
        (("--device", "desc"), "no device 'desc'"),
    ],
)
def test_what_cannot_be_gone_back_to_is_refused(
    home: Path, server: SshServer, words: tuple[str, ...], says: str
) -> None:
    before = current(server)

    ran = edgekit(home, "rollback", *words)

    assert ran.code == 2, ran.err
    assert says in ran.err
    assert "hint: " in ran.err
    assert current(server) == before


def test_a_damaged_version_is_not_gone_back_to(home: Path, server: SshServer) -> None:
    loud, quiet = digest_of(home, 0.4), digest_of(home, 0.1)
    library = server.root / "models" / loud / "model.so"
    sound = library.read_bytes()
    library.chmod(0o600)
    library.write_bytes(sound[:-1] + b"x")
    try:
        ran = edgekit(home, "rollback", "--device", "desk", "--to", loud[:12])
    finally:
        library.write_bytes(sound)

    assert ran.code == 8
    assert f"version {loud[:12]} of model on desk is damaged" in ran.err
    assert current(server) == quiet


def test_a_version_that_crashes_is_not_gone_back_to_and_the_log_says_why(
    home: Path, server: SshServer, tmp_path: Path
) -> None:
    trap = with_patched_kernels(open_bundle(home / "bundle-0.1"), tmp_path / "trap")
    before = current(server)
    ran = edgekit(home, "verify", str(trap.path), "--device", "desk")
    assert ran.code == 8, ran.err

    eventually(lambda: "SIGILL" in str(entries(home, "-n", "1")[0]["message"]))
    (last,) = entries(home, "-n", "1")
    assert (last["event"], last["failed"]) == ("run", True)
    assert current(server) == before
    assert "run: FAILED" in edgekit(home, "logs", "-n", "1").out


def test_what_a_crashing_model_said_is_in_the_log_and_steers_no_terminal(
    home: Path, server: SshServer, tmp_path: Path
) -> None:
    source = (
        "#include <stdio.h>\n#include <stdlib.h>\n"
        '__attribute__((constructor)) static void start(void) { fputs("last \\033[31mwords\\n", '
        "stderr); abort(); }"
    )
    loud = with_c_library(open_bundle(home / "bundle-0.1"), tmp_path / "loud", source)
    assert edgekit(home, "run", str(loud.path), "--device", "desk").code == 8

    eventually(lambda: "SIGABRT" in str(entries(home, "-n", "1")[0]["message"]))
    assert "last \\x1b[31mwords" in entries(home, "-n", "1")[0]["last_lines"]
    assert "\x1b" not in edgekit(home, "logs").out


def test_the_log_tells_the_deployments_and_runs_in_their_order(
    home: Path, server: SshServer
) -> None:
    events = [entry["event"] for entry in entries(home, "-n", "100")]

    assert events[:6] == ["run", "measured", "deployed"] * 2
    (first, *_) = entries(home, "-n", "100")
    assert str(first["time"]).startswith("20")
    assert str(first["clock"]).startswith("20")
    assert first["failed"] is False
    assert float(str(first["seconds"])) > 0


def test_rubbish_in_the_log_is_left_out(home: Path, server: SshServer) -> None:
    with (server.root / "log.jsonl").open("ab") as log:
        log.write(b'\xff\xfe\n{"event": "\x1b[2J", "seconds": 1e999}\n[1]\n' + b"{" * 5000 + b"\n")

    ran = edgekit(home, "logs", "-n", "4")

    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 1
    assert "\x1b" not in ran.out


def test_a_followed_log_is_one_document_a_line_and_ends_with_ctrl_c(
    home: Path, server: SshServer
) -> None:
    process = subprocess.Popen(
        command_line("logs", "--device", "desk", "-n", "100", "--follow", "--json"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=home, env=environment(user(home)), text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "run"
    quiet = digest_of(home, 0.1)
    words = ("deploy", "model.onnx", "--board", "local", "--device", "desk", "--no-bench")
    assert edgekit(home, *words).code == 0
    while True:
        entry = json.loads(process.stdout.readline())
        if entry["message"] == "verified" and entry["seconds"] is None:
            break

    process.send_signal(2)
    process.communicate(timeout=240)

    assert process.returncode == 130
    assert entry["digest"] == quiet


def test_tidying_up_leaves_what_is_current(home: Path, server: SshServer) -> None:
    kept = current(server)
    eventually(server.is_given_back)

    ran = edgekit(home, "device", "clean", "desk")

    assert ran.code == 0, ran.err
    assert [path.name for path in (server.root / "models").iterdir()] == [kept]
    assert len(list((server.root / "deployments/model").glob("*.version"))) == 1
    library = server.root / "deployments/model/current/model.so"
    assert library.read_bytes() == (home / "bundle-0.1/model.so").read_bytes()
    assert "no version of model before" in edgekit(home, "rollback").err
    eventually(server.is_given_back)

    assert edgekit(home, "device", "clean", "desk", "--all", "--keep", "1").code == 2
    assert edgekit(home, "device", "clean", "desk", "--all").code == 0
    assert not list((server.root / "models").iterdir())
    assert "nothing was deployed to desk" in edgekit(home, "versions").out
    assert "the log of desk is empty" in edgekit(home, "logs").out
    assert edgekit(home, "rollback").code == 2


def test_numbers_that_are_wrong_leave_the_version_before_current(
    home: Path, server: SshServer, tmp_path: Path
) -> None:
    good = open_bundle(home / "bundle-0.1")
    eventually(server.is_given_back)
    assert edgekit(home, "device", "clean", "desk", "--all").code == 0
    server.connect().close()
    device = SshDevice(server.entry(), load_toolchain("host"), 240, server.known_hosts)
    deploy_bundle(good, device, DeployPlan(bench=None))
    folder = copied(good, tmp_path / "wrong")
    (entry,) = good.manifest.outputs
    (expected,) = good.manifest.vectors[0].outputs
    np.save(folder / expected.file, good.reference_outputs()[entry.spec.name] + 1)
    wrong = resealed(good, folder)

    with pytest.raises(VerificationError):
        deploy_bundle(wrong, device, DeployPlan(bench=None))

    assert current(server) == good.digest
    eventually(lambda: entries(home, "-n", "1")[0]["event"] == "verified")
    assert entries(home, "-n", "1")[0]["failed"] is True

    unproven = deploy_bundle(wrong, device, DeployPlan(verify=False, bench=None))
    assert unproven.verification is None
    assert current(server) == wrong.digest
    listed = json.loads(edgekit(home, "versions", "--json").out)["versions"]
    assert [version["record"]["verified"] for version in listed] == [False, True]
