"""Advice about running a model on a board: options, their measurements, and an order."""
