"""What goes wrong in a farm, done on purpose: `make faults`."""
