"""Kernels for GPUs: schedules by rules from the device's limits, and OpenCL's C."""
