"""Tasks for boards: edgekit device provision --board rpi4 examples/fabfile.py"""

from fabric import Connection, task


@task
def report(c: Connection) -> None:
    """Say what the board is and how much room it has."""
    c.run("uname -srm; df -h / | tail -1; free | head -2")


@task(pre=[report], default=True)
def prepare(c: Connection) -> None:
    """Make a folder for data and note when that was."""
    c.run("mkdir -p ~/edge-data && date -u >~/edge-data/prepared && cat ~/edge-data/prepared")
