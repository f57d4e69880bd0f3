"""For libraries that take tensors as a model has them: rules in words that several libraries
share, and a region as a program that their C++ reads.

rules/ says which operators are which layers, program.py writes a region's layers down, and
include/edgekit_program.h, beside edgekit_region.h, reads that back.
"""
