"""Compiles on a Dask cluster: tasks go to workers, answers and files come back by hash."""
