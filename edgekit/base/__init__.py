"""What every other package uses: errors, events, files, text and processes."""
