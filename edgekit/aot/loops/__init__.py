"""C out of TVM's own loop nests: floats, and whatever has no operator of its own."""
