"""What takes several operations, once for every channel and screen. Begin with `merging.py`.

A use case is a function of the service: channels and screens ask for its input and show its answer.
"""
