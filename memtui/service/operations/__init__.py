"""What is done with memories: query, write, correct, forget, undo. Begin with `memories.py`."""
