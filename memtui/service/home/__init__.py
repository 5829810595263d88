"""What a home consists of, and how it is kept. Begin with `companies.py`."""
