"""Pictures of models and measurements: plain data, drawn by Vega-Lite in a browser."""
