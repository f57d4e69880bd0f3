"""Compile kernels for NVIDIA GPUs on a host without one."""
