"""The result of a build: a folder with a manifest, a library or C, and reference vectors."""
