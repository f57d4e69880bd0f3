"""All errors of edgekit: each has a sentence, a hint and an exit code.

The exit codes are part of the public interface (docs/exit-codes.md); add, never renumber.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ErrorReport:
    """An error as scripts get it."""

    type: str
    message: str
    hint: str | None
    details: tuple[str, ...]
    exit_code: int


class EdgekitError(Exception):
    """An error: one sentence about what happened, a hint what to do, and further details."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        # Python 3.11 shows notes below a traceback.
        self.__notes__ = [*details, *([f"hint: {hint}"] if hint else [])]

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self.message}", *(f"  {line}" for line in self.__notes__)]

    def report(self, exit_code: int | None = None) -> ErrorReport:
        return ErrorReport(
            type(self).__name__,
            self.message,
            self.hint,
            self.details,
            self.exit_code if exit_code is None else exit_code,
        )


class UsageError(EdgekitError):
    """The options of a command make no sense."""

    exit_code = 2


class OffloadRefusedError(UsageError):
    """The board can't use a library that the options name."""


class BadInputError(EdgekitError):
    """Something that the user provided is broken: a file, a profile, a value."""

    exit_code = 3


class ModelError(BadInputError):
    """The model file cannot be read, or is not a model."""


class ProfileError(BadInputError):
    """A board or toolchain profile is missing or wrong."""


class ProjectError(BadInputError):
    """edgekit.toml is missing or wrong."""


class InputError(BadInputError):
    """An input tensor of the user does not fit the model."""


class BundleError(BadInputError):
    """A bundle is damaged, incomplete, unsafe, or from another schema version."""


class SignatureError(BundleError):
    """A bundle in a registry is not what the key's owner signed, or older than one seen before."""


class UnsupportedModelError(EdgekitError):
    """The model is valid, but uses something that edgekit cannot compile."""

    exit_code = 4


class MissingToolError(EdgekitError):
    """A compiler, library or Python package that the work needs is not installed."""

    exit_code = 5


class BuildError(EdgekitError):
    """Compiling or linking failed."""

    exit_code = 6


class VerificationError(EdgekitError):
    """The device's numbers differ from the oracle's."""

    exit_code = 7


class DeviceError(EdgekitError):
    """The device, or the model running on it, failed."""

    exit_code = 8


class StorageError(EdgekitError):
    """The file system refused: full, read-only, no permission."""

    exit_code = 9


class DevicesFailedError(EdgekitError):
    """Some of several devices failed. The report holds the error of each."""

    exit_code = 10


class StoreError(EdgekitError):
    """The store of measurements is missing, locked, damaged, or of another version."""

    exit_code = 11


class RegressionError(EdgekitError):
    """A benchmark is slower than the one it was compared with, by more than allowed."""

    exit_code = 12


class NotComparableError(EdgekitError):
    """A measurement shows nothing: two can't be compared, or one is invalid by its own rules."""

    exit_code = 15


class AccuracyError(EdgekitError):
    """A model's accuracy on a data set is below the limit that was set."""

    exit_code = 17


class ResourceError(EdgekitError):
    """A limit of open files, memory or processes is too small for the work."""

    exit_code = 13


class UntrustedProjectError(EdgekitError):
    """A project's file or a model makes edgekit run or send something, and its user has not agreed
    to it."""

    exit_code = 14


class RegistryError(EdgekitError):
    """A registry can't be reached, refuses, or lacks what was asked for."""

    exit_code = 16


class InterruptedByUserError(EdgekitError):
    """The user pressed Ctrl-C."""

    exit_code = 130
