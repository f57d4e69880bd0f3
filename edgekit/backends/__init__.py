"""Bring your own codegen: whole regions of a model go to a library that runs them better."""
