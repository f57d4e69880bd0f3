"""From a model file to a bundle."""
