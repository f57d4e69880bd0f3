"""Kernels for a GPU of NVIDIA's, compiled on a machine that needs none."""
