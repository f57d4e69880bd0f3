"""Bring your own codegen: hand regions of a model to a library that runs them faster."""
