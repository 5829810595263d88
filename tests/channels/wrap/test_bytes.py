"""What passes is the same to the byte, whatever it is."""

from __future__ import annotations

import json
import os
import random
import sys
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from memtui.channels.wrap.frames import LogState
from memtui.channels.wrap.passing import Line, Passing
from memtui.provider_kit.server_events import EventReader
from tests.channels.wrap.conftest import HERE, KEY, Begin

CALLS = 10_000
_TEXTS = ("plain", "ü\u2028\U0001f600", 'a\\"b\n\t\0', "\ud83d", "x" * 300, "", "[1m\x1b[0m")


def line(rng: random.Random, number: int) -> bytes:
    """Return one line of what a client or something odd may send."""
    text = rng.choice(_TEXTS)
    members = [
        ("jsonrpc", "2.0"),
        ("id", rng.choice([number, str(number), None, 1.5])),
        ("method", rng.choice(["tools/call", "ping", "notifications/cancelled"])),
        ("params", {"name": text, "arguments": {text: [text, number, 1e400, True]}}),
    ]
    rng.shuffle(members)
    said: object = dict(members)
    if rng.random() < 0.1:
        said = [said, {"id": number, "result": {}}]
    is_ascii = "\ud83d" in text or rng.random() < 0.5
    words = json.dumps(
        said,
        ensure_ascii=is_ascii,
        indent=None,
        separators=rng.choice([(",", ":"), (", ", " : "), (",  ", ":\t")]),
    ).encode()
    if rng.random() < 0.1:
        words = bytes(rng.randbytes(rng.randrange(40))).replace(b"\n", b"")
    elif rng.random() < 0.05:
        words = words[: rng.randrange(len(words))]
    elif rng.random() < 0.05:
        words = words.replace(b'"id"', b'"id": 1, "\\u0069d"')
    return words + rng.choice([b"\n", b"\n", b"\n", b"\r\n", b" \n", b"\n\n"])


def payloads() -> bytes:
    rng = random.Random(7)
    lines = [line(rng, number) for number in range(CALLS)]
    for at in (100, 5_000, 9_000):
        long = {
            "jsonrpc": "2.0",
            "id": at,
            "method": "tools/call",
            "params": {"name": "keep", "arguments": {"text": "é\\" * 2_500_000}},
        }
        lines[at] = json.dumps(long, ensure_ascii=False).encode() + b"\n"
    return b"".join(lines) + b'{"jsonrpc":"2.0","method":"the last line has no end"'


def test_ten_thousand_calls_pass_with_no_byte_changed(wrap: Begin, tmp_path: Path) -> None:
    kept, sent = tmp_path / "kept", payloads()
    server = [sys.executable, str(HERE / "recording_server.py"), str(kept), "7"]
    process = wrap(KEY, "--", *server).process
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def send() -> None:
        rng, at = random.Random(3), 0
        while at < len(sent):
            size = rng.choice([1, 50, 4_096, 70_000])
            os.write(stdin.fileno(), sent[at : at + size])
            at += size
        stdin.close()

    sending = Thread(target=send)
    sending.start()
    got = stdout.read()
    sending.join()
    assert got == sent
    assert kept.read_bytes() == sent
    assert process.wait() == 7


class Told:
    """What a log is given, in place of a process."""

    has_rules: bool | None = False
    state = LogState()

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.asked: list[bytes] = []
        self.is_settled = False

    @property
    def is_free(self) -> bool:
        return self.has_rules is False

    def tell(self, _kind: bytes, line: list[bytes]) -> None:
        self.lines.append(b"".join(line))

    def ask(self, line: bytes, _decide: object) -> None:
        self.asked.append(line)

    def settle(self) -> None:
        """Take note that it was waited for those that wait."""
        self.is_settled = True

    def wait_until_known(self) -> None:
        """The rules stay as they are."""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_cut_wherever_chunks_end(size: int) -> None:
    text = b"\n\nab\r\n" + b"c" * 20 + b"\n" + b"last"
    told, agent = Told(), list[bytes]()
    passing = Passing(agent.append, agent.append, told)  # type: ignore[arg-type]
    for at in range(0, len(text), size):
        passing.from_server(text[at : at + size])
    passing.server_ended()
    passing.server_ended()
    assert b"".join(agent) == text
    assert told.lines == text.splitlines(keepends=True)


def test_of_a_line_without_an_end_no_more_is_kept_than_is_weighed() -> None:
    line, part = Line(), b"x" * (1 << 20)
    for _ in range(100):
        line.add(part)
    assert line.is_cut
    assert sum(map(len, line.parts)) < 40 << 20


def test_a_line_that_began_before_the_rules_waits_for_them() -> None:
    told, server = Told(), list[bytes]()
    passing = Passing(server.append, list[bytes]().append, told)  # type: ignore[arg-type]
    passing.from_agent(b" ")
    told.has_rules = True
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"keep"}}'
    passing.from_agent(call + b"\r" + call + b"\n")
    assert b"".join(server) == b" \n"
    assert told.asked == [b" " + call + b"\r" + call + b"\n"]


def test_a_line_that_lacked_only_its_end_as_the_rules_came_passes_once() -> None:
    told, server = Told(), list[bytes]()
    passing = Passing(server.append, list[bytes]().append, told)  # type: ignore[arg-type]
    passing.from_agent(b'{"id":1}')
    told.has_rules = True
    passing.from_agent(b'\n{"method":"ping"}\n')
    assert b"".join(server) == b'{"id":1}\n{"method":"ping"}\n'
    assert told.asked == []


class Refusing(Told):
    """A log whose rules cannot be read."""

    has_rules = None

    def ask(self, line: bytes, decide: Any) -> None:
        super().ask(line, decide)
        decide(b"no\n")


def test_an_agent_that_is_gone_mid_line_does_not_keep_the_others_waiting() -> None:
    told = Refusing()

    def gone(_answer: bytes) -> None:
        raise BrokenPipeError

    passing = Passing(list[bytes]().append, gone, told)  # type: ignore[arg-type]
    passing.from_agent(b'{"method":"tools/call')
    passing.agent_ended()
    assert told.asked == [b'{"method":"tools/call']
    assert told.is_settled


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_events_of_a_stream_are_read_wherever_chunks_end(size: int) -> None:
    stream = (
        b'id: 7\r\nretry: 250\r\ndata: {"a":\r\ndata:  1}\r\n\r\n: hello\n\ndata:x\r\rid\ndata\n\n'
    )
    chunks = (stream[at : at + size] for at in range(0, len(stream), size))
    found = [*chain.from_iterable(map(EventReader().add, chunks))]
    assert [one.data for one in found] == [b'{"a":\n 1}', b"x", b""]
    assert (found[0].event_id, found[0].retry_s) == ("7", 0.25)


def test_the_server_gets_the_environment_as_it_was(
    wrap: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRAPPED_BY_MEMTUI", "an entry of a client")
    print_it = "import os; print({k: v for k, v in os.environ.items()})"
    process = wrap(KEY, "--", sys.executable, "-c", print_it).process
    said, _ = process.communicate()
    given = eval(said)
    assert "WRAPPED_BY_MEMTUI" not in given
    assert "PYDANTIC_DISABLE_PLUGINS" not in given or "PYDANTIC_DISABLE_PLUGINS" in os.environ
    assert given["PATH"] == os.environ["PATH"]


def test_what_cannot_be_started_is_named(wrap: Begin) -> None:
    code, said = wrap(KEY, "--", "/no/such/program").end()
    assert code == 2
    assert said == "/no/such/program cannot be started: No such file or directory.\n"
