"""What a project says: edgekit.toml and the devices in it."""
