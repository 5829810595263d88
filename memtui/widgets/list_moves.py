"""The moves of a list, for whatever can go to a line."""

from __future__ import annotations

from abc import abstractmethod


class ListMoves:
    """Carries out the moving actions of the group `list`."""

    @abstractmethod
    def move(self, lines: int) -> None:
        """Move by so many lines, down where it is positive, as far as there are any."""

    @property
    @abstractmethod
    def page_lines(self) -> int:
        """Lines of a page."""

    def action_down(self) -> None:
        """Move down one row."""
        self.move(1)

    def action_up(self) -> None:
        """Move up one row."""
        self.move(-1)

    def action_page_down(self) -> None:
        """Move down a page."""
        self.move(max(1, self.page_lines - 1))

    def action_page_up(self) -> None:
        """Move up a page."""
        self.move(-max(1, self.page_lines - 1))

    def action_half_down(self) -> None:
        """Move down half a page."""
        self.move(max(1, self.page_lines // 2))

    def action_half_up(self) -> None:
        """Move up half a page."""
        self.move(-max(1, self.page_lines // 2))
