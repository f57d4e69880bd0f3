"""A board's sensors: power, energy, temperatures, clocks, throttling, fans."""
