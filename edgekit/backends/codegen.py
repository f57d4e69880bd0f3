"""The regions of a partition as files that the board's compiler takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.backends.base import Backend, Options, Region
from edgekit.backends.source import blob_symbol
from edgekit.base.errors import BuildError, EdgekitError
from edgekit.base.files import storage_errors
from edgekit.base.wording import few
from edgekit.cross.blob import write_blob


@dataclass(frozen=True)
class RegionFiles:
    """The files of one region; names are relative to their folder."""

    symbol: str
    backend: str
    source: str
    blobs: tuple[str, ...]
    """Assembly files, each of which embeds the blob file of the same name."""
    layers: tuple[str, ...]
    """The layer names that messages use for the region."""
    bytes: int = 0
    """The bytes of all blobs."""
    place: str = ""
    """Where the region computes, in words, if that is not the CPU alone."""


def write_regions(
    regions: Sequence[Region],
    backends: Sequence[tuple[Backend, Options]],
    folder: Path,
) -> tuple[RegionFiles, ...]:
    by_name = {backend.name: (backend, options) for backend, options in backends}
    return tuple(_write(region, *by_name[region.backend], folder) for region in regions)


def _write(region: Region, backend: Backend, options: Options, folder: Path) -> RegionFiles:
    try:
        generated = backend.generate(region, options)
    except EdgekitError:
        raise
    except Exception as error:
        raise BuildError(
            f"the backend {backend.name} could not write the region {region.symbol} of "
            f"{few(layer_names(region))}: {type(error).__name__}: {error}",
            hint="keep some of its operators in TVM with [offload] never, and report the model to "
            "the author of the backend",
        ) from error
    source = f"{region.symbol}.cc"
    assemblies = []
    with storage_errors("write a region", folder):
        (folder / source).write_text(generated.source, encoding="utf-8")
        for name, content in generated.blobs.items():
            symbol = blob_symbol(region.symbol, name)
            (folder / f"{symbol}.bin").write_bytes(content)
            assemblies.append(write_blob(folder, symbol, f"{symbol}.bin"))
    size = sum(map(len, generated.blobs.values()))
    names = layer_names(region)
    return RegionFiles(
        region.symbol, backend.name, source, tuple(assemblies), names, size, generated.place
    )


def layer_names(region: Region) -> tuple[str, ...]:
    """Return the names of a region's steps in the model file, or TVM's where it has none."""
    return tuple(
        "+".join(step.nodes) if step.nodes else "+".join(step.operators) for step in region.steps
    )
