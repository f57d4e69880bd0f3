"""Emulated twins: a whole Linux board in QEMU, for everybody who has no board at hand."""
