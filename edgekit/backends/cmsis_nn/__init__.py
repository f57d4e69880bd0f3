"""CMSIS-NN: Arm's library of kernels for Cortex-M, used where it costs the fewest instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import MissingToolError

if TYPE_CHECKING:
    from edgekit.aot.kernel import Generator
    from edgekit.backends.base import Options
    from edgekit.backends.cmsis_nn.sources import CmsisNn


class CmsisNnBackend:
    name = "cmsis-nn"

    def identity(self, options: Options) -> str:
        try:
            found = _found(options)
        except MissingToolError:
            return ""
        return f"{found.version} {found.identity}"

    def require(self, options: Options) -> None:
        _found(options)

    def generator(self, options: Options) -> Generator:
        from edgekit.aot.kernel import AbsentGenerator
        from edgekit.backends.cmsis_nn.generator import CmsisNnGenerator

        try:
            return CmsisNnGenerator(_found(options))
        except MissingToolError as error:
            return AbsentGenerator(self.name, error.message)


def _found(options: Options) -> CmsisNn:
    from edgekit.backends.cmsis_nn.sources import find_cmsis_nn

    place = options.get("path")
    return find_cmsis_nn(None if place is None else Path(str(place)))


BACKEND = CmsisNnBackend()
