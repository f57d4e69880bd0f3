"""A model as a shared library without a runtime: kernels in machine code, called by C."""
