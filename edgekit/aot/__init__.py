"""Bare metal: a model as plain C, planned into one arena, on a microcontroller."""
