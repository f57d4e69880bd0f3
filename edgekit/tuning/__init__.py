"""Choices of schedules that were measured: how they are tried, and where they are kept."""
