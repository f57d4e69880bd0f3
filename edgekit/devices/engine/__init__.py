"""Engines of WebAssembly on this machine as devices."""

from pathlib import Path

LOADER = Path(__file__).with_name("edgekit.mjs")
"""Loads a module and runs its model, in every engine that has JavaScript."""
