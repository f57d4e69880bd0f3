"""The kinds of boards, and what follows from a board's kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

BoardKind = Literal["local", "linux", "baremetal", "webassembly"]
TransportKind = Literal["local", "ssh", "serial", "engine"]
TargetKind = Literal["llvm", "c"]


@dataclass(frozen=True)
class Traits:
    """What all boards of a kind have in common."""

    transport: TransportKind
    target: TargetKind
    is_host: bool = False
    has_os: bool = True
    in_engine: bool = False


KINDS: Mapping[str, Traits] = MappingProxyType(
    {
        "local": Traits("local", "llvm", is_host=True),
        "linux": Traits("ssh", "llvm"),
        "baremetal": Traits("serial", "c", has_os=False),
        "webassembly": Traits("engine", "llvm", in_engine=True),
    }
)


class HasKind:
    """The properties of a board, or of a bundle's entry for it, that follow from its kind."""

    kind: str

    @property
    def is_host(self) -> bool:
        """Whether the board is this host."""
        return self.kind in KINDS and KINDS[self.kind].is_host

    @property
    def has_os(self) -> bool:
        """Whether the board has an operating system, which loads libraries and runs an SSH server.

        A microcontroller has none: it gets a firmware, and talks on a serial line.
        """
        return self.kind not in KINDS or KINDS[self.kind].has_os

    @property
    def in_engine(self) -> bool:
        """Whether an engine on any machine runs the models, such as one of WebAssembly."""
        return self.kind in KINDS and KINDS[self.kind].in_engine
