"""Runs to keep, and a PostgreSQL server of the tests' own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from edgekit.store.bench_runs import visit_bench_runs
from edgekit.store.database import Store
from edgekit.store.findings import Findings
from edgekit.store.moments import now, this_process
from edgekit.store.run_profile import RunProfile, RunStep, RunTimeline
from edgekit.store.runs import (
    AccuracyFigure,
    BenchRun,
    BuildFacts,
    Conditions,
    Evaluation,
    RegionCost,
)
from edgekit.store.saving import save_findings
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload
from support.needs import require
from support.ports import free_port

_PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql")


def all_bench_runs(store: Store) -> tuple[BenchRun, ...]:
    return visit_bench_runs(store, tuple)


def a_run(number: int = 0, median: float = 0.010, **changes: object) -> BenchRun:
    """One of many that differ by number and time."""
    nanoseconds = round(median * 1e9)
    samples = tuple(nanoseconds + step * nanoseconds // 1000 for step in range(-20, 21))
    run = BenchRun(
        id=f"{number:032x}",
        measured_at=f"2026-03-01T12:{number // 60 % 60:02}:{number % 60:02}.000000Z",
        build=BuildFacts(
            digest="ab" * 32,
            model="net",
            model_sha256="cd" * 32,
            board="rpi4",
            target='{"kind": "llvm"}',
            compiler="aarch64-linux-gnu-gcc 12.2",
            offload=("ncnn",),
            edgekit_version="0.1.0",
            tvm_version="0.27.0",
        ),
        device="kitchen",
        host="desk",
        purpose="bench",
        unit="seconds",
        measured_by="hardware",
        median=median,
        p90=median * 1.018,
        p99=median * 1.02,
        mean=median,
        minimum=median * 0.98,
        stdev=median * 0.01,
        warmup=3,
        conditions=Conditions(threads=4, governor="performance", frequency_mhz=1500.0),
        model_peak=12_000_000,
        notes=("p99 of 41 runs is close to the slowest one",),
        samples=samples,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def an_evaluation(number: int = 0, top1: float = 0.75, **changes: object) -> Evaluation:
    """An evaluation of the build that `a_run` measures."""
    run = a_run(number)
    evaluation = Evaluation(
        id=f"{number:032x}",
        measured_at=run.measured_at,
        build=run.build,
        device=run.device,
        host=run.host,
        purpose="evaluate",
        task="classification",
        data="pictures",
        samples=42,
        measured_by="hardware",
        seconds=0.011,
        figures=(AccuracyFigure("top1", top1, True), AccuracyFigure("mae", 0.125, False)),
    )
    return replace(evaluation, **changes)  # type: ignore[arg-type]


A_PROFILE = RunProfile(
    10,
    (
        RunStep("conv", "kernel", ("conv", "relu"), "", 1000, 8000, (), 1.0, 4_000_000),
        RunStep("region", "region", ("head",), "ncnn", 4000, 4000, (0,), 1.0, 2_000_000),
        RunStep("copy_out", "copy", (), "", 16, None, (0, 1), 1.0, 0),
    ),
    (RunTimeline(7_000_000, (0, 1), (1_000_000, 5_000_000), (4_000_000, 2_000_000)),),
)
A_TARGET = '{"kind": "llvm", "mcpu": "cortex-a72", "num-cores": 4}'
A_WORKLOAD = Workload("product-0123", A_TARGET, 1, "convolution", None)


def a_record(number: int = 0, **changes: object) -> TuningRecord:
    """One of many that differ by number, time and choice."""
    record = TuningRecord(
        id=f"{number:032x}",
        workload=A_WORKLOAD,
        session="5" * 32,
        device="kitchen",
        measured_at=f"2026-03-01T12:{number // 60 % 60:02}:{number % 60:02}.000000Z",
        choice={"family": "product", "unrolled": number},
        best_us=80.0,
        own_us=100.0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def a_session(**changes: object) -> TuningSession:
    """One that this process runs."""
    session = TuningSession(
        id="5" * 32,
        model="net",
        model_sha256="cd" * 32,
        board="rpi4",
        target=A_TARGET,
        devices=("kitchen", "cellar"),
        host=socket.gethostname(),
        process=this_process(),
        started_at=now(),
        heard_at=now(),
        ended_at=None,
        state="running",
        kernels=12,
        wanted_trials=64,
        wanted_seconds=None,
        measured_by="hardware",
        unit="seconds",
    )
    return replace(session, **changes)  # type: ignore[arg-type]


def a_point(number: int = 0, **changes: object) -> TuningProgress:
    """One of a curve that falls."""
    point = TuningProgress(
        session="5" * 32,
        at=f"2026-03-01T12:{number // 60 % 60:02}:{number % 60:02}.500000Z",
        trials=8 * number,
        failed=number,
        own_us=1000.0,
        best_us=500.0 + 500.0 / (1 + number),
    )
    return replace(point, **changes)  # type: ignore[arg-type]


def a_cost(**changes: object) -> RegionCost:
    cost = RegionCost(
        region="edgekit_ncnn_0123456789abcdef",
        board="rpi4",
        backend="ncnn",
        version="1.0",
        library_us=80.0,
        tvm_us=100.0,
        agrees=True,
        device="kitchen",
        measured_at="2026-01-02T03:04:05.000000Z",
        measured_by="hardware",
    )
    return replace(cost, **changes)  # type: ignore[arg-type]


def save_session(store: Store, session: TuningSession) -> None:
    save_findings(store, [Findings(session=session)])


def save_records(
    store: Store, records: Sequence[TuningRecord], progress: TuningProgress | None = None
) -> int:
    return save_findings(store, [Findings(records=tuple(records), progress=progress)])


def postgres_programs() -> Path | None:
    """The folder with initdb and pg_ctl, which Debian keeps off the PATH."""
    for name in ("pg_ctl",):
        found = shutil.which(name)
        if found and (Path(found).resolve().parent / "initdb").exists():
            return Path(found).resolve().parent
    for place in _PLACES:
        for folder in sorted(Path(place).glob("*/bin"), reverse=True):
            if (folder / "initdb").exists():
                return folder
    return None


@dataclass(frozen=True)
class Postgres:
    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://edgekit@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self.folder}"
        self._control("start", "-o", options, "-l", str(self.folder / "log"))

    def stop(self, how: str = "fast") -> None:
        self._control("stop", "-m", how)

    def kill(self) -> None:
        """As kill -9 does it to all of its processes."""
        self._control("stop", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        _as_other_user(
            [str(self.programs / "pg_ctl"), "-w", "-D", str(self.folder / "data"), *arguments],
            self.folder,
        )


@contextmanager
def postgres_in(folder: Path) -> Iterator[Postgres]:
    require("postgresql")
    programs = postgres_programs()
    assert programs is not None
    folder.mkdir(parents=True)
    if os.getuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        for parent in folder.parents:
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o001)
    _as_other_user(
        [
            str(programs / "initdb"),
            "-A",
            "trust",
            "-U",
            "edgekit",
            "--no-sync",
            "-D",
            str(folder / "data"),
        ],
        folder,
    )
    server = Postgres(programs, folder, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop("immediate")


def _as_other_user(command: list[str], folder: Path) -> None:
    """PostgreSQL refuses to run as root."""
    # Not a pipe: the server inherits it, and whoever reads to its end would wait for ever.
    with tempfile.TemporaryFile() as output:
        done = _run(command, folder, output)
        output.seek(0)
        assert done == 0, f"{command} ended with {done}: {output.read().decode()[-500:]}"


def _run(command: list[str], folder: Path, output: IO[bytes]) -> int:
    user = "nobody" if os.getuid() == 0 else None
    done = subprocess.run(
        command,
        user=user,
        group="nogroup" if user else None,
        extra_groups=[] if user else None,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)},
        timeout=120,
    )
    return done.returncode
