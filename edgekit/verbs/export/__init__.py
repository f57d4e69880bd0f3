"""Exports a bundle as an application: a C++ program, its build files, a systemd unit."""
