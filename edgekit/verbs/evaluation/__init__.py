"""Evaluates bundles on devices with data sets that have labels; a file for each task."""
