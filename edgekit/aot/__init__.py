"""Bare metal: write a model as plain C with one planned arena, for a microcontroller."""
