"""edgekit build: compile a model file into a bundle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.aot.packages.formats import CODE_FORMATS
from edgekit.base.wording import counted, duration, size
from edgekit.bundle.manifest_oracle import oracle_in_words
from edgekit.bundle.manifest_vectors import vectors_in_words
from edgekit.cli.build_options import outcome_options, to_be_built_with
from edgekit.cli.cluster_option import cluster_option
from edgekit.cli.console import Console
from edgekit.cli.device_options import device_options_with_timeout
from edgekit.cli.options import Command, json_option, pass_console
from edgekit.cli.tune_options import check_quick_tune, quick_tune_options

if TYPE_CHECKING:
    from edgekit.api.choice import DeviceKeywords
    from edgekit.api.keywords import BuildKeywords, TuneKeywords
    from edgekit.building.request import BuildResult


@click.command("build", cls=Command)
@to_be_built_with(
    click.option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Seed of the reference inputs."
    ),
    click.option(
        "--no-verify",
        is_flag=True,
        help="Skip the oracle: the bundle's outputs stay unverified.",
    ),
    click.option(
        "--prefix",
        metavar="NAME",
        help="Prefix of C names, on bare-metal boards.  [default: the model's name]",
    ),
    click.option(
        "--format",
        type=click.Choice(CODE_FORMATS),
        metavar="FORMAT",
        help=f"On bare-metal boards, a package around the C: {', '.join(CODE_FORMATS[1:])}.  "
        "[default: c, none]",
    ),
)
@outcome_options(
    click.option("--zip", "archive", is_flag=True, help="Write DIR.zip as well."),
    click.option(
        "--dump-ir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write the module after each phase of the compiler.",
    ),
    click.option(
        "--memory-map",
        is_flag=True,
        help="On bare-metal boards, show the memory map and which boards have enough memory.",
    ),
)
@quick_tune_options
@cluster_option
@device_options_with_timeout
@json_option
@pass_console
def command(
    console: Console,
    model: Path | None,
    how: BuildKeywords,
    outcome: dict[str, Any],
    search: TuneKeywords,
    cluster: str | None,
    where: DeviceKeywords,
) -> None:
    """Compile MODEL for a board into a bundle: library, manifest, reference vectors. No device is
    used, except with --quick-tune."""
    check_quick_tune(search, bool(where["twin"] or where["device"]))
    result = console.workspace.on_cluster(cluster).build_result(
        model, **outcome, **search, **how, **where
    )
    console.report(result, lambda: _render(console, result))


def _render(console: Console, result: BuildResult) -> None:
    from edgekit.building.products import product_in

    manifest = result.bundle.manifest
    total = sum(file.size for file in manifest.files)
    how = "from the cache" if result.from_cache else f"in {duration(result.seconds)}"
    console.heading(f"{manifest.model.name} for {manifest.board.name}, {how}")
    pairs = [
        ("bundle", str(result.bundle.path)),
        ("size", f"{size(total)} in {counted(len(manifest.files), 'file')}"),
        *product_in(manifest).size_in_words(manifest, result.weight_bytes),
        *(("package", file.path) for file in manifest.files if file.role == "package"),
        ("expected outputs", oracle_in_words(manifest.oracle)),
        ("reference vectors", vectors_in_words(manifest.vectors)),
        *((f"no vector {left.name}", left.reason) for left in manifest.left_out),
        ("reproducible", "yes" if manifest.reproducible else manifest.reproducible_note),
    ]
    if manifest.kernels:
        counts = Counter(kernel.rule for kernel in manifest.kernels).most_common()
        rules = ", ".join(f"{count} {rule}" for rule, count in counts)
        pairs.append(("kernels", f"{len(manifest.kernels)} ({rules})"))
        measured = [kernel for kernel in manifest.kernels if kernel.choice]
        pairs += [(kernel.name, f"{kernel.rule}, measured {kernel.choice}") for kernel in measured]
    if manifest.regions:
        from edgekit.backends.report import offload_in_words

        pairs.append(("offloaded", offload_in_words(manifest.regions)))
    if result.archive is not None:
        pairs.insert(1, ("archive", str(result.archive)))
    console.fields(pairs)
    if result.memory_map is not None:
        from edgekit.building.products.program_in_c import MEMORY_MAP_NAME
        from edgekit.cli.show_memory_map import show_memory_map

        show_memory_map(console, result.memory_map, result.bundle.path / MEMORY_MAP_NAME)
