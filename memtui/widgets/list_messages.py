"""What a list tells its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from memtui.widgets.virtual_list import VirtualList


class ListMessage(Message):
    """Base: the list that it comes from."""

    def __init__(self, rows_list: VirtualList[Any]) -> None:
        super().__init__()
        self.rows_list = rows_list

    @property
    def control(self) -> VirtualList[Any]:
        """The list, for selectors of `@on`."""
        return self.rows_list


class PagesWanted(ListMessage):
    """Lines came into view that the model does not hold."""

    def __init__(self, rows_list: VirtualList[Any], pages: tuple[int, ...]) -> None:
        super().__init__(rows_list)
        self.pages = pages

    def can_replace(self, message: Message) -> bool:
        """Let a newer wish replace one that nobody has answered yet."""
        return isinstance(message, PagesWanted) and message.rows_list is self.rows_list


class Highlighted(ListMessage):
    """The cursor stands on another row, or the row under it has changed."""

    def can_replace(self, message: Message) -> bool:
        """Coalesce a burst of moves."""
        return isinstance(message, Highlighted) and message.rows_list is self.rows_list


class Opened(ListMessage):
    """A row was chosen, with the key or a second click."""


class SelectionChanged(ListMessage):
    """Marks or the range changed."""


class Scrolled(ListMessage):
    """The view moved; whether it is at the top may be different now."""

    def can_replace(self, message: Message) -> bool:
        """Coalesce a burst of moves."""
        return isinstance(message, Scrolled) and message.rows_list is self.rows_list


class ColumnsAsked(ListMessage):
    """The person wants to choose the columns."""


class SortAsked(ListMessage):
    """The person wants the rows ordered by a column; asked again, the other way round."""

    def __init__(self, rows_list: VirtualList[Any], column: str) -> None:
        super().__init__(rows_list)
        self.column = column
