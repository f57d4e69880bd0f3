"""Suites of tests for packages that add to edgekit, and the pytest plugin: edgekit[testing]."""
