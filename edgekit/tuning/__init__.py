"""Searches for faster schedules, measured on devices."""
