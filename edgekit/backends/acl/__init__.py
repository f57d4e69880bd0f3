"""Arm Compute Library: a region's layers become its function objects, which run on NEON.

rules.py selects the plain-tensor rules that it supports; include/edgekit_acl.h runs the program
that plain/program.py writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.backends.base import GeneratedRegion, Option, Options, Region, Rule
from edgekit.backends.from_recipe import INT8, NON_FINITE, THREADS, FromRecipe


class Acl(FromRecipe):
    name = "acl"
    title = "Arm Compute Library"
    architectures = ("aarch64",)
    before_folding = False
    include = Path(__file__).parent / "include"
    options: Mapping[str, Option] = {
        "threads": THREADS,
        "int8": INT8,
        "non_finite": NON_FINITE,
    }

    def rules(self, options: Options) -> Sequence[Rule]:
        from edgekit.backends.acl.rules import all_rules

        return all_rules(int8=bool(options["int8"]))

    def generate(self, region: Region, options: Options) -> GeneratedRegion:
        from edgekit.backends.plain.codegen import generate_program

        settings = ", ".join(settings_of(options))
        return generate_program(region, "edgekit_acl.h", "edgekit::acl::Runner", f"{{{settings}}}")


def settings_of(options: Options) -> tuple[str, ...]:
    """Return the settings as C++ literals, in the order of edgekit_acl.h."""
    only_finite = "true" if options["non_finite"] == "error" else "false"
    return (str(int(options["threads"])), only_finite)


BACKEND = Acl()
