"""The version, where the build backend and the manifest both read it."""

__version__ = "0.1.0"
