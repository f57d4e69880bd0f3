"""From dequantize, float operators, quantize to operators that compute in integers."""
