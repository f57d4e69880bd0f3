"""From a float model to one in int8: calibration data, the quantiser, and what it costs."""
