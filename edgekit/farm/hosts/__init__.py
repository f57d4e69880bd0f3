"""Hosts whose farms have joined this one."""
