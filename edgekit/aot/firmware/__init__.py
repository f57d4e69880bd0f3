"""edgekit's own firmware: models in C, made a program that a microcontroller runs by itself."""
