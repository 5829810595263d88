"""The channel for a browser of this machine: the terminal app, one process a tab."""
