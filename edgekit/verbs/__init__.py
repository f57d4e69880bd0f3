"""The commands of edgekit, one file each."""
