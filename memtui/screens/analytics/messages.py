"""What the halves of the Analytics screen tell it."""

from __future__ import annotations

from textual.message import Message


class StatementGiven(Message):
    """A statement for the editor, which a person may run."""

    def __init__(self, statement: str) -> None:
        super().__init__()
        self.statement = statement


class Counted(Message):
    """Another number of operations is added up."""
