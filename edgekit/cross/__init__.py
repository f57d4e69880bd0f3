"""Toolchains at work: compilers, linking, third-party libraries and the runtime for a board."""
