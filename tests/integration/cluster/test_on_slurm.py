"""Workers as jobs of a real SLURM, on a cluster of one node that this test starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.building import CHECKOUT
from support.needs import needs
from support.ports import free_port

pytestmark = [needs("dask", "dask-jobqueue", "slurm"), pytest.mark.slow]

_SETTINGS = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a controller, a node, and the service by which they know each other."""
    from support.cluster_tasks import wait_for

    folder = tmp_path / "slurm"
    for part in (folder, folder / "state", folder / "spool"):
        part.mkdir()
    settings = folder / "slurm.conf"
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    ports = (free_port(), free_port())
    host = socket.gethostname().partition(".")[0]
    settings.write_text(_SETTINGS.format(host=host, ports=ports, user=user, folder=folder))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    monkeypatch.setenv("SLURM_CONF", str(settings))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT}:{CHECKOUT / 'tests'}")
    # Debian's user for munge owns its folders; here all belongs to the test.
    munge = {
        "key-file": key,
        "socket": folder / "munge.sock",
        "pid-file": folder / "munge.pid",
        "log-file": folder / "munge.log",
        "seed-file": folder / "munge.seed",
    }
    words = [word for name, path in munge.items() for word in (f"--{name}", str(path))]
    with ExitStack() as closing:
        closing.enter_context(_running(folder, "munged", "--foreground", "--force", *words))
        wait_for((folder / "munge.sock").exists)
        closing.enter_context(_running(folder, "slurmctld", "-D", "-c", "-f", str(settings)))
        closing.enter_context(_running(folder, "slurmd", "-D", "-f", str(settings)))
        wait_for(lambda: "idle" in _said("sinfo", "--noheader"))
        yield
        subprocess.run(["scancel", "--user", user], check=False)


@contextmanager
def _running(folder: Path, program: str, *words: str) -> Iterator[None]:
    with (folder / f"{program}.out").open("wb") as output:
        process = subprocess.Popen(
            [program, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def test_workers_are_jobs_of_dask_jobqueue(slurm: None, tmp_path: Path) -> None:
    from dask_jobqueue import SLURMCluster
    from distributed import Security
    from support.cluster_tasks import HERE, Job, wait_for

    from edgekit.cluster.certificates import init
    from edgekit.cluster.cluster import cluster_at
    from edgekit.cluster.place import parse_place

    folder = init(tmp_path / "certificates").folder
    # As docs/cluster.md has it.
    security = Security(
        require_encryption=True,
        tls_ca_file=f"{folder}/ca.crt",
        tls_scheduler_cert=f"{folder}/scheduler.crt",
        tls_scheduler_key=f"{folder}/scheduler.key",
        tls_worker_cert=f"{folder}/worker.crt",
        tls_worker_key=f"{folder}/worker.key",
        tls_client_cert=f"{folder}/client.crt",
        tls_client_key=f"{folder}/client.key",
    )
    with SLURMCluster(
        cores=1,
        processes=1,
        memory="1GB",
        walltime="00:10:00",
        protocol="tls",
        security=security,
        shared_temp_directory=str(folder),
        interface="lo",
        local_directory=str(tmp_path),
        log_directory=str(tmp_path / "logs"),
        python=sys.executable,
    ) as jobs:
        jobs.scale(jobs=2)
        place = parse_place(jobs.scheduler_address, tmp_path)
        with cluster_at(place, HERE, folder) as cluster:
            wait_for(lambda: cluster.width == 2, 120)
            job = cluster.run(Job(), {})
            assert job in _said("squeue", "--noheader", "--format=%i").split()


def test_workers_are_jobs_that_run_edgekit(slurm: None, tmp_path: Path) -> None:
    from support.cluster_tasks import HERE, Job, wait_for

    from edgekit.cluster.certificates import init
    from edgekit.cluster.cluster import cluster_at
    from edgekit.cluster.place import parse_place

    folder = init(tmp_path / "certificates").folder
    port = free_port()
    edgekit = f"{sys.executable} -m edgekit cluster"
    options = f"--certificates {folder}"
    listen = f"127.0.0.1:{port}"
    script = tmp_path / "scheduler"
    script.write_text(f"#!/bin/sh\nexec {edgekit} scheduler --listen {listen} {options}\n")
    script.chmod(0o755)
    with _running(tmp_path, str(script)):
        subprocess.run(
            [
                *("sbatch", "--array=1-2", "--cpus-per-task=1", "--mem=500M", "--chdir=/"),
                *(f"--output={tmp_path}/job-%a", "--wrap"),
                f"{edgekit} worker tls://{listen} --lanes 1 {options}",
            ],
            check=True,
        )
        place = parse_place(f"tls://{listen}", tmp_path)
        with cluster_at(place, HERE, folder) as cluster:
            wait_for(lambda: cluster.width == 2, 120)
            assert cluster.run(Job(), {}) in _said("squeue", "--noheader", "--format=%A")
