"""What the hardware of a device can do at most, measured by a small program in C."""
