"""Farms of other hosts that joined this one."""
