"""scripts/architecture on a small tree whose figures are known."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.source import ROOT

FILES = {
    "edgekit/__init__.py": "",
    "edgekit/lone.py": "from pathlib import Path\n\nhome = Path.cwd()\n",
    "edgekit/base/__init__.py": "",
    "edgekit/base/one.py": "def late():\n    from edgekit.base import two\n",
    "edgekit/base/two.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from edgekit.base.three import Three\n"
    ),
    "edgekit/base/three.py": "from edgekit.base.one import late\n",
    "edgekit/cli/__init__.py": "",
    "edgekit/cli/run.py": (
        "import edgekit.base.one\n"
        "def many(a, b, c, d, e, f, g):\n"
        "    return a.board.kind == b or a.kind != b or isinstance(a, SshDevice)\n"
        "class Few:\n"
        "    def few(self, a, b, c, d, e, f): ...\n"
    ),
    "edgekit/base/up.py": "def late():\n    import edgekit.cli.run\n",
    "edgekit/agent.cc": "int main() {}\n",
    "docs/cli.md": "## edgekit run\n" + "| `--x` | |\n" * 16 + "## edgekit rest\n| `--y` | |\n",
}


def measured(root: Path, *arguments: str) -> dict[str, Any]:
    script = root / "scripts" / "architecture"
    result = subprocess.run(
        [sys.executable, script, "--json", *arguments], capture_output=True, text=True, check=True
    )
    return dict(json.loads(result.stdout))


def small_tree(root: Path) -> None:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "architecture", root / "scripts")
    git(root, "init", "-q")


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True)


def test_the_figures_of_a_small_tree(tmp_path: Path) -> None:
    small_tree(tmp_path)

    figures = measured(tmp_path)

    assert figures["modules_at_top"] == 2
    assert figures["rooms"] == 2
    assert figures["modules"] == 9
    assert figures["circles"] == [[f"edgekit.base.{name}" for name in ("one", "three", "two")]]
    assert figures["arrows_between_placed_rooms"] == 2
    assert figures["arrows_up"] == ["base -> cli"]
    assert figures["unplaced"] == ["edgekit", "lone"]
    assert figures["lines"] == figures["lines_of_python"] + 1
    assert figures["functions_with_many_parameters"] == ["edgekit/cli/run.py:2"]
    assert figures["comparisons_of_board_kind"] == ["edgekit/cli/run.py:3"]
    assert figures["comparisons_of_kind"] == ["edgekit/cli/run.py:3"] * 2
    assert figures["isinstance_of_devices"] == ["edgekit/cli/run.py:3"]
    assert figures["current_folder"] == ["edgekit/lone.py:3"]
    assert figures["commands_with_many_options"] == {"edgekit run": 16}


def test_another_commit_is_measured_as_it_was(tmp_path: Path) -> None:
    small_tree(tmp_path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "before")
    before = measured(tmp_path)
    (tmp_path / "edgekit" / "more.py").write_text("")

    assert measured(tmp_path, "--at", "HEAD") == before
    assert measured(tmp_path)["modules_at_top"] == before["modules_at_top"] + 1
