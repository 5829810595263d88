"""What happened: the log, the past of a scope, runs, figures. Begin with `log.py`."""
