"""Compile a Relax module to machine code."""
