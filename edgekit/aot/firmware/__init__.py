"""edgekit's own firmware: models in C, built into a program for a microcontroller."""
