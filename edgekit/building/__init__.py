"""Builds a bundle from a model file."""
