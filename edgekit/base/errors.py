"""Every way edgekit fails: one sentence, one hint, one exit code.

The exit codes are part of the public interface (docs/exit-codes.md); add, never renumber.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ErrorReport:
    """What a script gets for an error."""

    type: str
    message: str
    hint: str | None
    details: tuple[str, ...]
    exit_code: int


class EdgekitError(Exception):
    """What happened in one sentence, what to do about it, and anything longer as details."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def report(self, exit_code: int | None = None) -> ErrorReport:
        return ErrorReport(
            type(self).__name__,
            self.message,
            self.hint,
            self.details,
            self.exit_code if exit_code is None else exit_code,
        )


class UsageError(EdgekitError):
    """The command was asked for something that cannot be meant."""

    exit_code = 2


class BadInputError(EdgekitError):
    """Something the user handed over is broken: a file, a profile, a value."""

    exit_code = 3


class ModelError(BadInputError):
    """The model file cannot be read, or is not a model."""


class ProfileError(BadInputError):
    """A board or toolchain profile is missing or wrong."""


class ProjectError(BadInputError):
    """edgekit.toml is missing or wrong."""


class InputError(BadInputError):
    """An input tensor handed over by the user does not fit the model."""


class BundleError(BadInputError):
    """A bundle is damaged, incomplete, unsafe, or from another schema version."""


class UnsupportedModelError(EdgekitError):
    """The model is sound, but uses what edgekit cannot compile."""

    exit_code = 4


class MissingToolError(EdgekitError):
    """A compiler, library or Python package that the work needs is not installed."""

    exit_code = 5


class BuildError(EdgekitError):
    """Compiling or linking failed."""

    exit_code = 6


class VerificationError(EdgekitError):
    """The device's numbers are not the oracle's numbers."""

    exit_code = 7


class DeviceError(EdgekitError):
    """The device, or the model running on it, failed."""

    exit_code = 8


class StorageError(EdgekitError):
    """The file system refused: full, read-only, no permission."""

    exit_code = 9


class DevicesFailedError(EdgekitError):
    """Of several devices, some failed; each one's own error is in the report."""

    exit_code = 10


class StoreError(EdgekitError):
    """The store of measurements can't be used: not there, locked, damaged, of another version."""

    exit_code = 11


class RegressionError(EdgekitError):
    """A benchmark is slower than what it was compared with, by more than was allowed."""

    exit_code = 12


class ResourceError(EdgekitError):
    """A limit of open files, memory or processes is too small for the work."""

    exit_code = 13


class UntrustedProjectError(EdgekitError):
    """A file of a project makes edgekit run or send something that its user has not agreed to."""

    exit_code = 14


class InterruptedByUserError(EdgekitError):
    """Ctrl-C."""

    exit_code = 130
