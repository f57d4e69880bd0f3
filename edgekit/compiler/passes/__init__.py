"""Relax passes of edgekit's own, one a file. `compiler/pipeline.py` says their order."""
