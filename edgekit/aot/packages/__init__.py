"""A model in C in the forms that other people's tools take."""
