"""MLPerf Inference: LoadGen asks, a device answers."""
