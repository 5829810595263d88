"""The context of a model, and plans to shorten it. Begin with `contexts.py`."""
