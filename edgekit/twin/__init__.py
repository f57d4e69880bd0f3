"""Emulated twins: boards in QEMU, for use without the real board."""
