"""Times runtimes of others beside bundles, on the same machine, in alternating rounds."""
