"""The web page of a farm."""
