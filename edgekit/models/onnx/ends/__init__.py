"""Write the operators of [preprocess] and [postprocess] around an ONNX model."""
