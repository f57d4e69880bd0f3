"""Bundles in OCI registries: signed on their way out, verified on their way in.

Everything that a registry answers is untrusted. What counts is what the key's owner signed.
"""
