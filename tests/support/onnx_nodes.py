"""ONNX's node cases, judged by the benchmark that writes docs/onnx-operators.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.source import ROOT


def verdicts(folder: Path, *options: str) -> dict[str, str]:
    """Verdict by case, with the reason where it is neither right nor refused."""
    out = folder / "verdicts.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "onnx_nodes.py"), "--jobs", "2"]
    subprocess.run(
        [*command, "--no-docs", "--json", str(out), *options],
        check=False,
        capture_output=True,
        cwd=folder,
    )
    found = json.loads(out.read_text())
    return {
        item["case"]: item["verdict"]
        if item["verdict"] in ("right", "refused")
        else f"{item['verdict']}: {item['reason']}"
        for item in found
    }
