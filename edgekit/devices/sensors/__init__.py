"""What a board can tell of itself: power, energy, temperatures, clocks, throttling, fans."""
