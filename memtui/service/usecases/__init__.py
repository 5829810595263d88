"""Actions of several operations, shared by all channels and screens. Begin with `merging.py`.

A use case is a function of the service: channels and screens ask for its input and show its answer.
"""
