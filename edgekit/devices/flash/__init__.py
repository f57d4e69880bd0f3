"""Writing a firmware to a microcontroller, each way through the tool that is kept for it."""
