"""The Python API: a workspace with a method for each verb."""
