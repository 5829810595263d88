"""All checks, one module per subject, in the order of a report."""

from importlib import import_module

from memtui.conformance.probe import DEFINED, ContractCheck

for _subject in ("namespaces", "memories", "fields", "attacks"):
    import_module(f"{__name__}.{_subject}")
CHECKS: tuple[ContractCheck, ...] = tuple(DEFINED)

__all__ = ["CHECKS"]
