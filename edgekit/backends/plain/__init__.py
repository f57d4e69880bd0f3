"""Code for libraries that take tensors in the model's own layout: rules that several libraries
share, and a region as a program that their C++ reads.

rules/ maps operators to layers, program.py writes a region's layers, and
include/edgekit_program.h reads them.
"""
