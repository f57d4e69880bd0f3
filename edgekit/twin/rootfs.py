"""Debian packages become a disk image, without root and without running the packages' code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgekit.base.errors import BuildError
from edgekit.base.events import Events
from edgekit.base.files import bytes_in
from edgekit.base.wording import size
from edgekit.twin.recipe import Owner, Recipe
from edgekit.twin.tools import BuildTools

_STEP_SECONDS = 300


def unpack(
    packages: Sequence[Path], recipe: Recipe, root: Path, tools: BuildTools, events: Events
) -> None:
    """Unpack packages into `root`, with the links of the merged /usr made first."""
    root.mkdir()
    for folder in recipe.folders:
        _inside(root, folder).mkdir(parents=True, exist_ok=True)
    for path, target in recipe.links:
        link = _inside(root, path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    with events.stage("unpack packages", len(packages)) as stage:
        for package in packages:
            unpack_package(package, root, tools, left_out=recipe.left_out_paths)
            stage.advance(detail=package.name.partition("_")[0])


def unpack_package(
    package: Path, root: Path, tools: BuildTools, left_out: Sequence[str] = ()
) -> None:
    """Unpack one package into a folder."""
    tools.pipe(
        ["dpkg-deb", "--fsys-tarfile", str(package)],
        [
            *("tar", "--extract", "--file=-", f"--directory={root}", "--no-same-owner"),
            *("--preserve-permissions", "--keep-directory-symlink", "--no-overwrite-dir"),
            *(f"--exclude={path}" for path in left_out),
        ],
        doing=f"unpack {package.name}",
        folder=root,
        limit_s=_STEP_SECONDS,
    )


def configure(recipe: Recipe, root: Path) -> None:
    """Do what the packages' scripts would do, as far as a twin needs it."""
    for file in recipe.files:
        before = _inside(root, file.append_to).read_text() if file.append_to else ""
        path = _inside(root, file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(before + file.text)
        path.chmod(file.mode)
    certificates = sorted(_inside(root, "/usr/share/ca-certificates").rglob("*.crt"))
    bundle = _inside(root, "/etc/ssl/certs/ca-certificates.crt")
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text() for path in certificates))
    for shared in ("/tmp", "/var/tmp"):
        _inside(root, shared).chmod(0o1777)
    _inside(root, "/root").chmod(0o700)


def make_disk(
    recipe: Recipe, root: Path, disk: Path, work: Path, tools: BuildTools, events: Events
) -> None:
    """Make an ext4 image of `root` in which root owns the files, whatever user runs this."""
    with (
        events.stage("make the file system", bytes_in(root)) as stage,
        stage.watching(lambda: disk.stat().st_blocks * 512 if disk.exists() else 0),
    ):
        size_in_blocks = f"{recipe.disk_bytes // 1024}k"
        tools.run(
            [
                *("mke2fs", "-q", "-t", "ext4", "-L", "edgekit", "-E", "root_owner=0:0"),
                *("-d", str(root), str(disk), size_in_blocks),
            ],
            doing="make the file system",
            folder=work,
            limit_s=_STEP_SECONDS,
        )
        _set_owners(recipe, root, disk, work, tools)
        stage.result = size(disk.stat().st_blocks * 512)


def _set_owners(recipe: Recipe, root: Path, disk: Path, work: Path, tools: BuildTools) -> None:
    """Set the owners of files with debugfs, without a mount, which needs root.

    mke2fs copies the owners that the files have on the host.
    """
    doing = "give the files their owners"
    script = work / "owners"
    commands = _owner_commands(recipe, root)
    script.write_text("".join(f"{command}\n" for command in commands))
    command = ["debugfs", "-w", "-f", str(script), str(disk)]
    said = tools.answer(command, doing=doing, folder=work, limit_s=_STEP_SECONDS)
    # It echoes each command and ends with status 0 even if one fails.
    wrong = [line for line in said.splitlines() if line and not line.startswith("debugfs")]
    if wrong:
        raise BuildError(
            f"debugfs could not {doing}",
            hint="report it: the twin's recipe does not fit this version of e2fsprogs",
            details=tuple(wrong[:10]),
        )


def _owner_commands(recipe: Recipe, root: Path) -> list[str]:
    commands = []
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = "/" + os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118
            if '"' in path or "\n" in path:
                raise BuildError(
                    f"a package has a file with an unusual name: {path!r}",
                    hint="report it: the twin's recipe should leave that file out",
                )
            owner = _owner_of(path, recipe.owners)
            commands += [
                f'set_inode_field "{path}" uid {owner.user}',
                f'set_inode_field "{path}" gid {owner.group}',
            ]
    return commands


def _owner_of(path: str, owners: Sequence[Owner]) -> Owner:
    for owner in owners:
        if path == owner.path or path.startswith(owner.path + "/"):
            return owner
    return Owner(path, 0, 0)


def _inside(root: Path, path: str) -> Path:
    """Return the host's path of a guest's path; absolute links of the guest stay inside."""
    current = root
    for part in path.strip("/").split("/"):
        current = current / part
        if current.is_symlink():
            target = current.readlink()
            if target.is_absolute():
                current = root / str(target).lstrip("/")
    return current
