"""TFLite models whose regions the twin of an Ethos-U runs on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from graphs.c_library import run_tree

from edgekit.aot.compile import Compiled, compile_tree
from edgekit.aot.generators import portable_generators
from edgekit.aot.job import TreeJob
from edgekit.aot.tree import Origin
from edgekit.aot.write import write_tree
from edgekit.backends.ethos_u.configuration import configuration_of, vela_version
from edgekit.backends.ethos_u.generator import EthosUGenerator
from edgekit.models.model import ModelSource, import_model
from edgekit.models.oracle import oracle_for
from support.c_builds import CORTEX_M55
from support.needs import require

PARTS = ("edgekit_ethosu.c", "edgekit_ethosu_registers.c", "edgekit_ethosu_twin.c")
SYSTEMS = {
    "u55": "Ethos_U55_High_End_Embedded",
    "u65": "Ethos_U65_Embedded",
    "u85": "Ethos_U85_SYS_Flash_High",
}
LIBRARY = ("-Ilib/ethos-u", *(f"lib/ethos-u/{part}" for part in PARTS))


@dataclass(frozen=True)
class OnNpu:
    """A model compiled for an NPU."""

    compiled: Compiled
    folder: Path

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the operators that the NPU runs."""
        steps = self.compiled.plan.program.steps
        return tuple(word for step in steps for word in getattr(step.operator, "operators", ()))

    @property
    def left(self) -> dict[str, str]:
        """Return the steps left to the CPU, with the NPU's reason."""
        pairs = zip(self.compiled.plan.program.steps, self.compiled.choices, strict=True)
        return {
            type(step.operator).__name__: dict(choice.others).get("ethos-u", "")
            for step, choice in pairs
            if choice.kernel.maker != "ethos-u"
        }

    def run(self, feeds: Mapping[str, np.ndarray], *flags: str) -> dict[str, np.ndarray]:
        sources = (*LIBRARY, *flags) if self.compiled.plan.libraries else flags
        return run_tree(self.compiled.plan, self.folder, feeds, "-Wno-conversion", *sources)


def on_npu(source: ModelSource, accelerator: str = "ethos-u55-128") -> OnNpu:
    require("ethos-u")
    system = SYSTEMS[accelerator.split("-")[1]]
    configuration = configuration_of({"accelerator": accelerator, "system": system, "twin": True})
    origin = Origin("net", source.path.name, "0", "twin", CORTEX_M55.name)
    offers = (EthosUGenerator(configuration, vela_version()), *portable_generators())
    compiled = compile_tree(import_model(source), TreeJob("net", origin, CORTEX_M55), offers)
    write_tree(compiled.plan, source.path.parent)
    return OnNpu(compiled, source.path.parent)


def wrong(source: ModelSource, npu: OnNpu, feeds: Mapping[str, np.ndarray]) -> str:
    """Return which numbers differ from LiteRT's reference kernels; empty if none does."""
    found, expected = npu.run(feeds), oracle_for(source).run(feeds)
    problems = []
    for name, right in expected.items():
        off = np.abs(found[name].astype("float64") - right.astype("float64"))
        if off.max(initial=0) > 0:
            problems.append(f"{name}: {(off > 0).sum()} of {off.size}, by up to {off.max()}")
    return "; ".join(problems)
