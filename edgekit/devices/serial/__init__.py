"""Microcontrollers on a serial line."""
