"""Helpers of every other package: errors, events, files, text and processes."""
