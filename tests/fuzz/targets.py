"""What parses data from outside in Python: how it is called, with what, how it may refuse it."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import EdgekitError
from fuzz import parsers, seeds

Parse = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Outcome:
    """What a parser did with data."""

    refused_at: str = ""
    """The line that refused it; empty where it was taken."""
    fault: Exception | None = None


@dataclass(frozen=True)
class Target:
    """A parser, and what it is tried with."""

    name: str
    parse: Parse
    """Gets the data and an empty folder."""
    seeds: Callable[[], Sequence[bytes]]
    refuses: tuple[type[Exception], ...] = (EdgekitError,)
    """What it says of data that it does not take; anything else is a fault."""

    def try_with(self, data: bytes) -> Outcome:
        """Parse the data, and see whether it was taken or refused as it should be."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                self.parse(data, Path(folder))
            except self.refuses as error:
                return Outcome(refused_at=place_of(error))
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                return Outcome(fault=error)
        return Outcome()


def place_of(error: BaseException) -> str:
    """The line of edgekit that an exception comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/edgekit/" in frame.filename] or list(frames)
    return f"{ours[-1].filename}:{ours[-1].lineno}" if ours else "nowhere"


def all_targets() -> Mapping[str, Target]:
    """Every target by name."""
    found = [
        Target("json", parsers.json_document, seeds.messages, (ValueError,)),
        Target("zip", parsers.zip_file, seeds.zips, (ValueError,)),
        Target("npy", parsers.npy, seeds.npys, (ValueError,)),
        Target("npy input", parsers.npy_input, seeds.npys),
        Target("npz input", parsers.npz_input, seeds.npzs),
        Target("image input", parsers.image_input, seeds.images),
        Target("pt2", parsers.pt2, seeds.pt2s),
        Target("pt2 description", parsers.pt2_description, seeds.pt2_descriptions),
        Target("onnx", parsers.onnx_model, seeds.onnxs),
        Target("tflite", parsers.tflite_model, seeds.tflites),
        Target("manifest", parsers.manifest, seeds.manifests),
        Target("registry document", parsers.registry_document, seeds.registry_documents),
        Target("board report", parsers.board_report, seeds.board_reports, (ValueError,)),
        Target("bundle archive", parsers.bundle_archive, seeds.archives),
        Target("board", parsers.board, seeds.boards),
        Target("project", parsers.project, seeds.projects),
        Target("worker frame", parsers.worker_frame, seeds.worker_frames, (ValueError,)),
        Target("serial frames", parsers.serial_frames, seeds.serial_frames, (ValueError,)),
        Target("agent messages", parsers.agent_messages, seeds.messages),
        Target("device log", parsers.device_log, seeds.messages),
        Target("sensors", parsers.sensors, seeds.snapshots),
        Target("tracker", parsers.tracker, seeds.tracker_answers),
        Target("joined farm", parsers.joined_farm, seeds.farm_messages),
        Target("trace", parsers.trace, seeds.traces, (ValueError,)),
        Target("results", parsers.results, seeds.results, (EdgekitError, ValueError)),
        Target("twin state", parsers.twin_state, seeds.twin_states),
        Target("elf", parsers.elf, seeds.elfs),
    ]
    return {target.name: target for target in found}
