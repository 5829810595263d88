"""The screens of the terminal app, one module each."""
