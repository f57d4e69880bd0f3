"""Package a model in C for other build systems."""
