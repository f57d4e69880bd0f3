"""oneDNN on x86-64: a region's layers become primitives, in the memory layouts that they choose.

rules.py selects the plain-tensor rules that it supports; include/edgekit_onednn.h runs the program
that plain/program.py writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.backends.base import GeneratedRegion, Option, Options, Region, Rule
from edgekit.backends.from_recipe import NON_FINITE, THREADS, FromRecipe


class OneDnn(FromRecipe):
    name = "onednn"
    title = "oneDNN"
    architectures = ("x86_64",)
    before_folding = False
    include = Path(__file__).parent / "include"
    options: Mapping[str, Option] = {
        "threads": THREADS,
        "arithmetic": Option("fp32", "how products are computed", ("fp32", "bf16")),
        "non_finite": NON_FINITE,
    }

    def rules(self, options: Options) -> Sequence[Rule]:
        from edgekit.backends.onednn.rules import all_rules

        return all_rules()

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        from edgekit.backends.plain.codegen import generate_program

        settings = ", ".join(settings_of(options))
        return generate_program(
            region, "edgekit_onednn.h", "edgekit::onednn::Runner", f"{{{settings}}}"
        )


def settings_of(options: Options) -> tuple[str, ...]:
    """Return the settings as C++ literals, in the order of edgekit_onednn.h."""
    switches = (options["arithmetic"] == "bf16", options["non_finite"] == "error")
    return (str(int(options["threads"])), *("true" if on else "false" for on in switches))


BACKEND = OneDnn()
