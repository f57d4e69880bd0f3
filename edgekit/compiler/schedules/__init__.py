"""edgekit's own CPU schedules: a rule for each family of kernels, fast without tuning."""
