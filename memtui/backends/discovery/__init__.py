"""Find the memories that are already on this machine and say how each could be bound.

Discovery only reads, looks at known places alone, and adds nothing.
"""

from memtui.backends.discovery.finding import Finding
from memtui.backends.discovery.search import discover

__all__ = ["Finding", "discover"]
