"""From a Relax module to machine code."""
