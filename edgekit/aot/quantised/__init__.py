"""Convert groups of dequantize, float operators and quantize to integer operators."""
