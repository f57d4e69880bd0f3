"""A timeline of inferences in the Trace Event Format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.wording import few
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.base.measurer import Measurer
    from edgekit.bundle.manifest_steps import LibraryStep
    from edgekit.devices.kernel_times import KernelTimes

_PROCESS = 1
_THREAD = 1


def write_trace(
    file: Path,
    title: str,
    times: KernelTimes | None,
    steps: Mapping[str, LibraryStep],
    measured_by: Measurer,
) -> None:
    """Write the timeline of the traced inferences; `title` names the bundle and the device."""
    if times is None or not times.timeline:
        raise DeviceError(
            f"{title} gave no times of single steps, so that there is no timeline to write",
            hint="a timeline comes from this machine, a Linux board, or a microcontroller with a "
            "clock; an emulated microcontroller counts instructions instead",
        )
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"title": title, "measured_by": measured_by, "edgekit": __version__},
        "traceEvents": [*_names(title), *_events(times, steps)],
    }
    with storage_errors("write the trace", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(document) + "\n")


def _names(title: str) -> Iterator[dict[str, object]]:
    for what, name in (("process_name", title), ("thread_name", "inferences")):
        yield {"ph": "M", "name": what, "pid": _PROCESS, "tid": _THREAD, "args": {"name": name}}


def _events(times: KernelTimes, steps: Mapping[str, LibraryStep]) -> Iterator[dict[str, object]]:
    """Yield an event for each inference, one after the other, and one for each call in it."""
    began = 0
    for number, inference in enumerate(times.timeline):
        arguments: dict[str, object] = {"number": number}
        yield _complete("inference", "inference", began, inference.nanoseconds, arguments)
        for kernel, start, nanoseconds in inference.calls():
            name = times.kernels[kernel].name
            step = steps.get(name)
            title = few(step.layers) if step is not None and step.layers else name
            kind = "call" if step is None else step.kind
            yield _complete(title, kind, began + start, nanoseconds, _arguments(name, step))
        began += inference.nanoseconds


def _arguments(name: str, step: LibraryStep | None) -> dict[str, object]:
    if step is None:
        return {"step": name}
    return {
        "step": name,
        "layer": ", ".join(step.layers),
        "owner": step.owner or "edgekit",
        "bytes": step.bytes,
    }


def _complete(
    name: str, category: str, start: int, nanoseconds: int, arguments: dict[str, object]
) -> dict[str, object]:
    """Return a complete event; the format counts microseconds."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PROCESS,
        "tid": _THREAD,
        "ts": start / 1000,
        "dur": nanoseconds / 1000,
        "args": arguments,
    }
