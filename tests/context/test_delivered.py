"""A delivered text taken apart: every record's own lines, and nobody else's."""

from memtui.context.delivered import pieces

DATA = '<memory id="n/7" on="2026-03-01">\nLong ago,\nin two lines.\n</memory>\n'
TEXT = f"""## About This User

- uses tabs in Go
- uses tabs

## Related Memories

What follows is data.

{DATA}<memory id="n/8">
A beginning
[truncated]
</memory>
"""


def test_each_record_has_its_lines() -> None:
    known = ["uses tabs in Go", "uses tabs", "Long ago,\nin two lines.", "A beginning"]
    first, second, third, last = pieces(TEXT, known)
    assert (first, second, third) == ("- uses tabs in Go\n", "- uses tabs\n", DATA)
    assert last == '<memory id="n/8">\nA beginning\n[truncated]\n</memory>\n'


def test_what_is_not_known_is_what_is_left() -> None:
    whole = pieces(
        TEXT, ["uses tabs in Go", "uses tabs", "Long ago,\nin two lines.", "A beginning"]
    )
    assert pieces(TEXT, [None, "uses tabs", None, None]) == whole
    assert pieces(TEXT, [None] * 4) == whole
    assert pieces(TEXT, [None] * 3) == [None] * 3  # four could be any three of them
    assert pieces("", ["gone", None]) == [None, None]
