"""Which way to take with a model on a board: options, what is known of them, and an order."""
