"""What type is a file? Google's magika answers; this is what its network needs around it.

`prepare FILE...` fetches the network and turns each file into its input; `tell ANSWERS` reads what
`edgekit run --json` said and names the types.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL, LABELS, INPUTS = HERE / "magika.onnx", HERE / "labels.json", HERE / "inputs"

# magika/config.min.json: so many bytes of the file's start and end, looked for in a block of each.
_BYTES_OF_EACH_END = 1024
_BLOCK = 4096
_NOTHING = 256
"""Stands where the file is too short for a byte."""


def prepare(files: list[Path]) -> None:
    import numpy as np

    _fetch()
    shutil.rmtree(INPUTS, ignore_errors=True)
    INPUTS.mkdir()
    for file in files:
        tokens = np.array([encode(*_ends(file))], np.int32)
        np.save(INPUTS / f"{file.name}.npy", tokens)


def encode(start: bytes, end: bytes) -> list[int]:
    """The network's input: the first and the last bytes that are no white space."""
    first = list(start.lstrip()[:_BYTES_OF_EACH_END])
    last = list(end.rstrip()[-_BYTES_OF_EACH_END:])
    first += [_NOTHING] * (_BYTES_OF_EACH_END - len(first))
    return first + [_NOTHING] * (_BYTES_OF_EACH_END - len(last)) + last


def tell(answers: Path) -> None:
    labels = json.loads(LABELS.read_text(encoding="utf-8"))["target_labels_space"]
    report = json.loads(answers.read_text(encoding="utf-8"))
    for sample in report["samples"]:
        (output,) = sample["outputs"]
        best = output["top"][0]
        name = sample["name"].removesuffix(".npy")
        print(
            f"{name:<20} {labels[best['index']]:<12} {best['value']:>4.0%}   "
            f"{sample['seconds']:.2f} s on {report['device']}"
        )


def _ends(file: Path) -> tuple[bytes, bytes]:
    with file.open("rb") as stream:
        start = stream.read(_BLOCK)
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - _BLOCK))
        return start, stream.read(_BLOCK)


def _fetch() -> None:
    """The network and its labels out of the Python package magika, pinned by its hash."""
    sys.path.insert(0, str(HERE.parent.parent))
    from benchmarks.model_zoo import PACKAGES, ZooModel, fetch, member

    folder = "magika/models/standard_v3_3"
    for place, name in ((MODEL, "model.onnx"), (LABELS, "config.min.json")):
        path = member(f"{folder}/{name}")
        kept = fetch(ZooModel("magika", f"magika-{name}", PACKAGES["magika"], path))
        if not place.is_file():
            shutil.copyfile(kept, place)


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    {"prepare": prepare, "tell": lambda found: tell(found[0])}[what]([Path(p) for p in paths])
