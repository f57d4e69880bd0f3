"""A bundle as the beginning of an application: a C++ program, its build files, a systemd unit."""
