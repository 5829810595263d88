"""What an agent may write, spend and decide. Begin with `holding.py`."""
