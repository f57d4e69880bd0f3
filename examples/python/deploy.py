"""Deploy a model to a board and print what was measured: python deploy.py net.onnx rpi4 [DEVICE]"""

from __future__ import annotations

import sys

import edgekit


def main() -> None:
    model, board, *device = sys.argv[1:]
    workspace = edgekit.Workspace(events=show)
    try:
        report = workspace.deploy(model, board=board, device=device[0] if device else None)
    except edgekit.EdgekitError as error:
        sys.exit(f"{error.message}\n{error.hint or ''}")
    print(report)
    if report.bench is not None:
        print(f"fastest of {report.bench.runs}: {report.bench.minimum * 1e3:.3f} ms")


def show(event: edgekit.Event) -> None:
    text = getattr(event, "text", None)
    if text:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
