"""Linux boards over SSH."""
