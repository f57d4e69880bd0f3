"""Quantises a float model to int8: calibration data, the quantiser, the loss of accuracy."""
