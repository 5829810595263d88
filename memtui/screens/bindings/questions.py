"""What the Bindings screen asks before it changes anything."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from memtui.actions import Need
from memtui.contract import Invalid, Json
from memtui.screens.base import MemtuiScreen
from memtui.screens.bindings.view import short_path, target_words
from memtui.screens.dialogs import Choice, Choose, Confirm, Prompt
from memtui.screens.scope_choices import seen_scopes

if TYPE_CHECKING:
    from memtui.backends.discovery import Finding
    from memtui.service.answers import BindingView, TargetView

Change = Callable[[Callable[[], Coroutine[Any, Any, object]], str], None]
"""Runs a change and says the sentence once it is done."""


def parse_config(text: str) -> Json:
    """Read a binding's config: `path=/notes limit=5`, or one JSON object.

    Raises:
        Invalid: the text is neither.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped)
        except ValueError as error:
            raise Invalid("The config is not valid JSON; write name=value instead.") from error
        return dict(value)
    try:
        words = shlex.split(stripped)
    except ValueError as error:
        raise Invalid("The config has an unclosed quote; close it or take it out.") from error
    if wrong := next((word for word in words if "=" not in word), None):
        raise Invalid(f"The config has {wrong!r} without a value; write name=value.")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


class BindingQuestions:
    """Asks, then hands the change to `change`; nothing happens without an answer."""

    def __init__(self, screen: MemtuiScreen, change: Change) -> None:
        self._screen = screen
        self._change = change

    def add_finding(self, finding: Finding) -> None:
        """Offer to bind what was found, read-only."""
        if not finding.usable:
            why = finding.problems[0] if finding.problems else "It cannot be read."
            self._screen.toast(f"{finding.title} cannot be added: {why}", severity="warning")
            return
        session = self._screen.session

        def answered(yes: object) -> None:
            if yes:
                self._change(
                    lambda: session.service.bindings.add(
                        session.caller,
                        finding.key,
                        finding.provider,
                        finding.config,
                        read_only=True,
                    ),
                    f"Added {finding.key}, read-only. t sets whom it serves, b shows its records.",
                )

        self._screen.app.push_screen(
            Confirm(
                f"Add {finding.title} as the read-only binding {finding.key}?",
                detail=f"{short_path(finding.path)}\nNothing in it is changed.",
                verb="add",
                otherwise="leave it",
            ),
            answered,
        )

    def add_own(self) -> None:
        """Ask for provider, key and config of a new binding."""
        names = self._screen.session.service.bindings.providers()

        def provider(name: str | None) -> None:
            if name is not None:
                self._ask_key(name)

        choices = [Choice(name, name) for name in names]
        self._screen.app.push_screen(Choose("Provider of the new binding", choices), provider)

    def _ask_key(self, provider: str) -> None:
        def key(text: str | None) -> None:
            if text:
                self._ask_config(provider, text.strip())

        self._screen.app.push_screen(
            Prompt("Key of the new binding", value=provider, check=_not_empty), key
        )

    def _ask_config(self, provider: str, key: str) -> None:
        session = self._screen.session

        def config(text: str | None) -> None:
            if text is not None:
                self._change(
                    lambda: session.service.bindings.add(
                        session.caller, key, provider, parse_config(text)
                    ),
                    f"Added {key}. t lets it serve someone.",
                )

        self._screen.app.push_screen(
            Prompt(
                f"Config of {key}",
                placeholder="path=/home/me/notes",
                hint="name=value …, or JSON; empty takes the defaults   enter add   esc go back",
                check=parse_config,
            ),
            config,
        )

    def toggle(self, binding: BindingView) -> None:
        """Enable, or after a yes disable."""
        session = self._screen.session
        if not binding.enabled:
            self._change(
                lambda: session.service.bindings.update(session.caller, binding.key, enabled=True),
                f"Enabled {binding.key}.",
            )
            return

        def answered(yes: object) -> None:
            if yes:
                self._change(
                    lambda: session.service.bindings.update(
                        session.caller, binding.key, enabled=False
                    ),
                    f"Disabled {binding.key}. e enables it again.",
                )

        self._screen.app.push_screen(
            Confirm(
                f"Disable {binding.key}?",
                detail="Nothing is asked of it until it is enabled; its memories stay.",
                verb="disable",
            ),
            answered,
        )

    def read_only(self, binding: BindingView) -> None:
        """Make read-only, or after a yes writable."""
        session = self._screen.session
        if not binding.read_only:
            self._change(
                lambda: session.service.bindings.update(
                    session.caller, binding.key, read_only=True
                ),
                f"{binding.key} is read-only now.",
            )
            return

        def answered(yes: object) -> None:
            if yes:
                self._change(
                    lambda: session.service.bindings.update(
                        session.caller, binding.key, read_only=False
                    ),
                    f"{binding.key} can be changed now.",
                )

        self._screen.app.push_screen(
            Confirm(
                f"Let {binding.key} be changed?",
                detail="Its files or its service will be written to by edits, adds and forgets.",
                verb="make writable",
            ),
            answered,
        )

    def target(self, binding: BindingView) -> None:
        """Ask whom the binding shall serve."""
        session = self._screen.session

        async def targets() -> list[Choice[tuple[str, str]]]:
            company = session.company.company_id
            choices = [Choice(("company", company), "the whole company", "company")]
            seen = await seen_scopes(session)
            for sort in ("project", "agent"):
                values = dict.fromkeys(
                    value for scope in seen if (value := getattr(scope, f"{sort}_id"))
                )
                choices += [Choice((sort, value), value, sort) for value in values]
            return choices

        def chosen(target: tuple[str, str] | None) -> None:
            if target is not None:
                sort, name = target
                served = "the whole company" if sort == "company" else f"{sort} {name}"
                self._change(
                    lambda: session.service.bindings.set_target(
                        session.caller, sort, name, binding.key
                    ),
                    f"{binding.key} serves {served} now.",
                )

        self._screen.app.push_screen(
            Choose(
                f"Whom shall {binding.key} serve?",
                targets,
                placeholder="type a project or an agent",
                offer=lambda text: [
                    Choice((sort, text), f"{text}  — as written", sort)
                    for sort in ("project", "agent")
                ],
            ),
            chosen,
        )

    def clear_target(self, binding: BindingView, target: TargetView | None) -> None:
        """Clear the target, or the one that is chosen."""
        if target is None and len(binding.targets) == 1:
            target = binding.targets[0]
        if target is None:
            if not binding.targets:
                self._screen.toast(f"{binding.key} serves nobody.", severity="warning")
                return
            choices = [Choice(one, target_words(one)) for one in binding.targets]
            self._screen.app.push_screen(
                Choose(f"Whom shall {binding.key} no longer serve?", choices),
                lambda one: None if one is None else self.clear_target(binding, one),
            )
            return
        session, chosen = self._screen.session, target
        self._change(
            lambda: session.service.bindings.clear_target(
                session.caller, chosen.target_type, chosen.target_id
            ),
            f"{binding.key} no longer serves {target_words(chosen)}.",
        )

    @staticmethod
    def unfit(binding: BindingView, bindings: Iterable[BindingView]) -> set[Need]:
        """Return the needs that a binding, or the lack of another, leaves open."""
        open_needs: set[Need] = set()
        if not binding.capabilities.namespaces:
            open_needs.add(Need.NAMESPACES)
        if binding.provider_key != "plugin-v1":
            open_needs.add(Need.PLUGIN)
        if all(one.key == binding.key for one in bindings):
            open_needs.add(Need.DESTINATION)
        return open_needs

    def namespaces(self, binding: BindingView, closed: Callable[[], None]) -> None:
        """Show the namespaces of a binding."""
        from memtui.screens.namespaces import Namespaces

        self._screen.app.push_screen(Namespaces(self._screen.state, binding), lambda _: closed())

    def conformance(self, binding: BindingView, closed: Callable[[], None]) -> None:
        """Show the conformance report of a memory plugin."""
        from memtui.screens.conformance import Conformance

        self._screen.app.push_screen(Conformance(self._screen.state, binding), lambda _: closed())

    def migrate(
        self, source: BindingView, bindings: Iterable[BindingView], closed: Callable[[], None]
    ) -> None:
        """Ask where the records of a binding go, then show the migration."""
        from memtui.screens.migration import Migration

        def chosen(destination: BindingView | None) -> None:
            if destination is not None:
                self._screen.app.push_screen(
                    Migration(self._screen.state, source, destination), lambda _: closed()
                )

        others = [one for one in bindings if one.key != source.key]
        choices = [
            Choice(one, f"{one.key}  {_obstacle(one)}".rstrip(), one.provider_key) for one in others
        ]
        self._screen.app.push_screen(
            Choose(f"Move the records of {source.key} to which binding?", choices), chosen
        )

    def remove(self, binding: BindingView) -> None:
        """Take the binding away after a yes."""
        session = self._screen.session

        def answered(yes: object) -> None:
            if yes:
                self._change(
                    lambda: session.service.bindings.remove(session.caller, binding.key),
                    f"Removed {binding.key}; its memories are where they were.",
                )

        serving = ", ".join(target_words(one) for one in binding.targets)
        detail = "Its memories stay where they are; the log keeps what was done."
        self._screen.app.push_screen(
            Confirm(
                f"Remove the binding {binding.provider_key}·{binding.key}?",
                detail=f"It serves {serving}.\n{detail}" if serving else detail,
                verb="remove",
            ),
            answered,
        )


def _obstacle(binding: BindingView) -> str:
    """Return what keeps records from being moved into a binding, as a note."""
    if not binding.enabled:
        return "(off)"
    if binding.read_only or not binding.capabilities.writable:
        return "(read-only)"
    return ""


def _not_empty(text: str) -> str:
    if not text.strip():
        raise Invalid("A binding needs a key; write one.")
    return text
