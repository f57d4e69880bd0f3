"""Reads projects: edgekit.toml and the devices in it."""
