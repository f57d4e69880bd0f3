"""Boards, CPUs and toolchains as data."""
