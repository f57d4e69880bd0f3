"""Devices: where bundles run."""
