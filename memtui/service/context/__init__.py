"""What a model is given, and what could go from it. Begin with `contexts.py`."""
