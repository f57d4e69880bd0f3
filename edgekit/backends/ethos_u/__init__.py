"""Ethos-U: Arm's NPUs beside a Cortex-M, whose commands Arm's compiler Vela makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.errors import MissingToolError

if TYPE_CHECKING:
    from edgekit.aot.kernel import Generator
    from edgekit.backends.base import Options


class EthosUBackend:
    name = "ethos-u"

    def identity(self, options: Options) -> str:
        from edgekit.backends.ethos_u.configuration import vela_version

        return vela_version()

    def require(self, options: Options) -> None:
        from edgekit.backends.ethos_u.configuration import (
            check_sections,
            configuration_of,
            require_vela,
        )

        require_vela()
        check_sections(configuration_of(options))

    def generator(self, options: Options) -> Generator:
        from edgekit.aot.kernel import AbsentGenerator
        from edgekit.backends.ethos_u.configuration import (
            check_sections,
            configuration_of,
            require_vela,
            vela_version,
        )
        from edgekit.backends.ethos_u.generator import EthosUGenerator

        configuration = configuration_of(options)
        try:
            require_vela()
        except MissingToolError as error:
            return AbsentGenerator(self.name, error.message)
        check_sections(configuration)
        return EthosUGenerator(configuration, vela_version())


BACKEND = EthosUBackend()
