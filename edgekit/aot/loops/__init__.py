"""C made from TVM's own loop nests: for floats, and for operators without an integer kernel."""
