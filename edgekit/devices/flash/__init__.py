"""Writes a firmware to a microcontroller, each way through a maintained tool."""
