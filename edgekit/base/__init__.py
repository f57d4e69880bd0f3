"""What every other room uses: errors, events, files, text, processes. Knows nothing of models or boards."""
