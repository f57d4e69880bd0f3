"""Relax passes of edgekit's own, one a file. `edgekit/compiler/pipeline.py` says in which order they run."""
