"""`facts get`, `facts keys` and `facts set`: facts by their key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memtui.channels.cli.fact_scope import FACT
from memtui.channels.cli.notes import store
from memtui.channels.cli.options import AsOf, BindingOptions, RunOptions, SourceOptions
from memtui.channels.cli.output import columns, table
from memtui.channels.cli.records import say_unknown_owners
from memtui.channels.cli.session import FirstSession, Session
from memtui.contract import NotFound, WriteMode
from memtui.fact_values import fact_text
from memtui.widgets import format as shown

if TYPE_CHECKING:
    from memtui.service import FactAnswer, FactKeys, FactRequest
    from memtui.service.operations.facts import KeyedFact

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, such as deploy_branch.")]
Namespace = Annotated[
    str | None,
    typer.Option(help="The namespace: in a facts file, the heading above the fact."),
]
AllBindings = Annotated[
    bool, typer.Option("--all-bindings", help="Ask every binding, not only those that serve it.")
]


async def facts_get(
    session: Session,
    key: Key,
    scope: BindingOptions,
    *,
    namespace: Namespace = None,
    all_bindings: AllBindings = False,
    as_of: AsOf = None,
) -> None:
    """Print the value of a key, the nearest scope's first.

    A project's value comes before a user's, an agent type's, the orchestrator's and the company's;
    which one counts and what it hides is said on stderr. With --json the value is a number, a truth
    value or a list where its text says nothing else: 47, true, [a, b].
    """
    session = session.at(as_of)
    request = _request(session, scope, namespace, all_bindings=all_bindings)
    try:
        answer = await session.service.facts.get(session.caller, key, request)
    except NotFound:
        await _say_unknown(session, request)
        raise
    session.out.answer(answer, [answer.written], *_reasons(answer))
    await _say_unknown(session, request, answer)


async def facts_keys(
    session: Session,
    scope: BindingOptions,
    *,
    namespace: Namespace = None,
    all_bindings: AllBindings = False,
    as_of: AsOf = None,
) -> None:
    """List the keys of facts with the value that counts, by namespace."""
    session = session.at(as_of)
    request = _request(session, scope, namespace, all_bindings=all_bindings)
    answer = await session.service.facts.keys(session.caller, request)
    hidden = sum(len(fact.hidden) for fact in answer.facts)
    session.out.answer(
        answer,
        table(columns("namespace", "key", "of", "binding", "hides>", "value*"), _rows(answer)),
        f"{shown.counted(len(answer.facts), 'key')}, "
        f"{shown.counted(hidden, 'value')} hidden by a nearer one.",
    )
    await _say_unknown(session, request, *answer.facts)


async def facts_set(
    session: FirstSession,
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Its value, kept as it is written.")
    ],
    scope: RunOptions,
    source: SourceOptions,
    *,
    namespace: Namespace = None,
) -> None:
    """Give a key a value and print the fact's id.

    A value that it has already in this scope is replaced; where the provider keeps the past, the
    old one stays there.
    """
    text = fact_text(key, value)
    mode = WriteMode.UPSERT
    await store(session, scope, source, content=text, kind=FACT, topic=namespace, mode=mode)


def _request(
    session: Session, scope: BindingOptions, namespace: str | None, *, all_bindings: bool = False
) -> FactRequest:
    from memtui.service import FactRequest

    return scope.request(session, FactRequest, namespace=namespace, all_bindings=all_bindings)


async def _say_unknown(session: Session, request: FactRequest, *found: KeyedFact) -> None:
    """Name whom of a request nothing is kept of, whatever facts of others answer it."""
    scopes = [one.record.scope for fact in found for one in (fact, *fact.hidden)]
    asked, everywhere = request.binding_key, request.all_bindings
    await say_unknown_owners(session, request.scope, asked, scopes, everywhere=everywhere)


def _reasons(answer: FactAnswer) -> Iterator[str]:
    """Say why it is this value, and what it hides."""
    yield answer.why
    for one in answer.hidden:
        yield f"hidden: {one.belongs_to} in {one.binding_key} says {one.written}"
    if answer.other_namespaces:
        names = ", ".join(name or "none" for name in answer.other_namespaces)
        yield f"The key stands for something else in other namespaces: {names}."


def _rows(answer: FactKeys) -> Iterator[list[str]]:
    for fact in answer.facts:
        hides = shown.count(len(fact.hidden)) if fact.hidden else ""
        yield [
            fact.namespace or "", fact.key, fact.belongs_to, fact.binding_key, hides,
            fact.written,
        ]  # fmt: skip
