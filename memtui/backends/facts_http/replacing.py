"""Put a new text in the place of a fact, on a wire that can only add and delete.

The new text is stored first and the old fact deleted then, so that nothing is lost wherever it
breaks off. A full list takes no new fact first: there the old one is deleted before, and put back
where the new text is not taken.
"""

from __future__ import annotations

import asyncio

from memtui.contract import (
    Conflict,
    Invalid,
    MemtuiError,
    NotFound,
    Record,
    RecordHandle,
    Unavailable,
)

from .client import FactsClient
from .records import handle_of, place_of, wire_id

_PUT_BACKS = 3
_PAUSE_SECONDS = 0.2


class Replacement:
    """One fact that gets another text, under another handle."""

    def __init__(self, client: FactsClient, old: Record, text: str) -> None:
        self._client = client
        self._old = old
        self._text = text

    async def run(self) -> RecordHandle:
        """Return the handle of the new text.

        Raises:
            MemtuiError: the text is not stored; `moved` is set where the old fact got a new handle.
        """
        try:
            new = await self._add(self._text)
        except (Invalid, Conflict) as error:
            if not await self._is_full():
                raise
            return await self._run_in_full_list(error)
        try:
            await self._delete(self._old.handle)
        except MemtuiError as error:
            await self._take_back(new, error)
        return new

    async def _is_full(self) -> bool:
        """Whether not even the old text, which was taken once, is taken now."""
        try:
            copy = await self._add(self._old.text)
        except (Invalid, Conflict):
            return True
        await self._delete(copy)
        return False

    async def _run_in_full_list(self, full: MemtuiError) -> RecordHandle:
        try:
            await self._delete(self._old.handle)
        except NotFound as error:
            raise self._deleted_meanwhile() from error
        except Unavailable as error:
            held = await self._held() if error.sent else None
            if held is None or self._old.handle in held:
                raise
        try:
            return await self._add(self._text)
        except MemtuiError as error:
            held = await self._held() if isinstance(error, Unavailable) and error.sent else None
            for handle, text in (held or {}).items():
                if text == self._text:
                    return handle
            raise await self._put_back(error) from full

    async def _held(self) -> dict[RecordHandle, str] | None:
        """Return what the list holds now, None where the server does not say."""
        kind, owner = place_of(self._old)
        try:
            facts = await self._client.list_facts(kind, owner)
        except MemtuiError:
            return None
        return {handle_of(kind, fact.id): fact.fact for fact in facts}

    async def _put_back(self, error: MemtuiError) -> MemtuiError:
        """Store the old text again, and return the error with where it is now."""
        for attempt in range(_PUT_BACKS):
            await asyncio.sleep(attempt * _PAUSE_SECONDS)
            try:
                handle = await self._add(self._old.text)
            except MemtuiError as second:
                failed = second
            else:
                kept = type(error)(f"{error} The old text is kept, as {handle.provider_record_id}.")
                kept.moved = handle
                return kept
        return Unavailable(
            f"The list was full, so the fact was deleted first, and then neither the new text nor "
            f"the old one was taken ({failed}) Write it anew: {self._old.text}",
            sent=True,
        )

    async def _take_back(self, new: RecordHandle, error: MemtuiError) -> None:
        """Delete what was stored, because the old fact could not be deleted."""
        try:
            await self._delete(new)
        except MemtuiError as second:
            raise Unavailable(
                f"The new text is stored as {new.provider_record_id}, and the old one may still be "
                f"there as {self._old.handle.provider_record_id}: {error}",
                sent=True,
            ) from second
        if isinstance(error, NotFound):
            raise self._deleted_meanwhile() from error
        raise error

    def _deleted_meanwhile(self) -> Conflict:
        return Conflict(
            "The fact was deleted while you changed it; write it anew if it still holds.",
            proposed=self._text,
        )

    async def _add(self, text: str) -> RecordHandle:
        kind, owner = place_of(self._old)
        return handle_of(kind, (await self._client.add(kind, owner, text)).id)

    async def _delete(self, handle: RecordHandle) -> None:
        await self._client.delete(*wire_id(handle))
