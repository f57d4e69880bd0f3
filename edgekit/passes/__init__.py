"""Relax passes of edgekit's own, one a file. `edgekit/pipeline.py` says in which order they run."""
