"""From compiled code to a file that runs over there."""
