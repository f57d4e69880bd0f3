"""Suites of tests for packages that add to edgekit; they need the extra edgekit[testing]."""
