"""What the halves of the Analytics screen tell it."""

from __future__ import annotations

from textual.message import Message


class StatementGiven(Message):
    """A statement for the editor, which a person may run."""

    def __init__(self, statement: str) -> None:
        super().__init__()
        self.statement = statement


class Told(Message):
    """What a half says of itself in the screen's own lines changed."""
