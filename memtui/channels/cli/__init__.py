"""The command line. Importing it loads Typer and the standard library only: `--help` is quick."""
