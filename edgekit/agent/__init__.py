"""The C++ program that runs on Linux boards: its source, and how it is built for one."""
