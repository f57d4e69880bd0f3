"""Everything that parses what comes from outside, given damaged and hostile data: make fuzz."""
