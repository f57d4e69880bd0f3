"""edgekit's Relax passes, one per file. `compiler/pipeline.py` lists their order."""
