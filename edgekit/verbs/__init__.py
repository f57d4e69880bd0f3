"""What edgekit does for its user, one verb a file."""
