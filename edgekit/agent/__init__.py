"""The C++ program that runs on Linux boards: its source and its build."""
