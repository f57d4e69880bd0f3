"""Every measurement, kept: an SQLite file by default, PostgreSQL by URL for a team."""
