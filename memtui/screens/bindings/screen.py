"""Screen 1: which binding serves which company, project and agent, and the health of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import ComposeResult
from textual.content import Content
from textual.reactive import var
from textual.widgets import OptionList

from memtui.actions import ACTIONS, Action, Need
from memtui.contract import (
    Denied,
    Embedding,
    Filter,
    Health,
    Json,
    Location,
    MemtuiError,
    NotFound,
    Problem,
    Scope,
)
from memtui.filters import format_filter
from memtui.paths import project_here
from memtui.presenters.format import counted, embedding_words
from memtui.screens.base import MemtuiScreen
from memtui.screens.bindings.view import (
    CAPTURE_WORDS,
    BindingsView,
    TreeRow,
    capture_words,
    found_place,
    found_title,
    profile_content,
    row_detail,
    rows_of,
    short_path,
    sync_content,
    target_words,
    whose,
)
from memtui.screens.dialogs import Choice, Choose, ChooseAll, Confirm, Sheet, throw_away
from memtui.screens.following import News
from memtui.screens.keymap import action_entries
from memtui.screens.open_source import open_file
from memtui.screens.scope_choices import offered_target, read_targets
from memtui.screens.state import AppState, ConfigurationChanged, GoTo, find_memories
from memtui.widgets.background import Background
from memtui.widgets.display import DIM, display
from memtui.widgets.frame import KeyFooter
from memtui.widgets.panes import DetailPane, Fitted, OptionRows, Split
from memtui.widgets.sized import AT_ONCE_SECONDS

if TYPE_CHECKING:
    from memtui.backends.discovery import DiscoveredMemory
    from memtui.screens.bindings.form import BindingDraft
    from memtui.service.answers import BindingHealth, BindingView
    from memtui.service.home.agents import Connected
    from memtui.service.home.bindings import Bindings
    from memtui.service.home.provider_views import ProviderView

T = TypeVar("T")

_LOOK_SECONDS = 2.0
_LOOKING = "memtui is still looking for memory stores on this machine."
_NAMED = 9
"""Most found memories that a question names; the others are counted."""
_NOBODY = "Nobody yet: esc."
_VAULT = "vault"
"""Provider of at least one of two bindings in sync."""

_MORE = ("namespaces", "conformance", "migrate", "in_sync", "sync", "embedding", "profile")
"""Actions listed below the details of a binding."""


class BindingsScreen(MemtuiScreen):
    """The tree of bindings, agents and memories found on this machine, and the details of a row."""

    MODE = "bindings"
    FILTERED = False
    READS_WITH = (
        "memtui.backends.discovery",
        "memtui.service.home.agents",
        "memtui.service.operations.in_sync",
    )

    view: var[BindingsView] = var(BindingsView)

    def __init__(self, state: AppState) -> None:
        super().__init__(state)
        self._finding = Background(self, "discovery")
        self._loading = Background(self, "providers")
        self._looking = Background(self, "agents")
        self._drawing = Background(self, "drawing")
        self._health: dict[str, Background] = {}
        self._rows: list[TreeRow] = []
        self._drawn: TreeRow | None = None
        """The row whose details are shown."""
        self._known: dict[str, ProviderView] = {}
        """Cached settings of providers, which do not change while the app runs."""

    def compose_body(self) -> ComposeResult:
        """Lay out tree and details."""
        with Split(self.MODE, self.state.shares):
            yield OptionRows(id="binding-tree")
            with DetailPane(classes="split-detail"):
                yield Fitted(id="binding-detail")
                yield KeyFooter(id="binding-more")

    @property
    def _tree(self) -> OptionRows:
        return self.query_one("#binding-tree", OptionRows)

    def load(self) -> None:
        """Read the bindings, then the health of each; search for memories once."""
        self._read()
        self._draw_together()
        self._looking.forget()
        self._look_around()
        self._look_for_others()

    async def prepare(self) -> None:
        """Read the bindings; no provider is queried until the screen is shown."""
        if self._stale:
            self._read()
            self._look_for_others()
            self.focus_body()

    def _look_for_others(self) -> None:
        """Search once for memories on this machine, and for providers that cannot be used."""
        if self.view.findings is None and not self._finding.busy:
            self._finding.latest(find_memories, self._show_findings, self.fail)
            self._loading.latest(self._service.provider_problems, self._show_unusable, self.fail)

    def _read(self) -> None:
        bindings, caller, pairs = self._service, self.session.caller, self.session.service.pairs

        async def read() -> BindingsView:
            found = await bindings.all(caller)
            plugins = filter(bindings.is_plugin, {one.provider_key for one in found})
            return BindingsView(
                bindings=tuple(found),
                plugins=await asyncio.to_thread(lambda: frozenset(plugins)),
                in_sync=tuple(await pairs.all(caller)),
            )

        self.reads.latest(read, self._show_bindings, self._fail_to_read)

    def _show_bindings(self, found: BindingsView) -> None:
        self.view = replace(
            self.view, bindings=found.bindings, plugins=found.plugins, in_sync=found.in_sync
        )
        if self.is_current:
            self._ask_all()

    def _fail_to_read(self, error: MemtuiError) -> None:
        if self.is_current:
            self.fail(error)

    def _show_unusable(self, problems: list[str]) -> None:
        self.view = replace(self.view, unusable=tuple(Problem(message=one) for one in problems))

    def on_mount(self) -> None:
        """Read the connected agents every `_LOOK_SECONDS`."""
        self.set_interval(_LOOK_SECONDS, self._look_around)

    def _look_around(self) -> None:
        """Read the connected agents: the log does not show that a session begins or ends."""
        session = self.state.session
        if session is not None and self.is_current and not self._looking.busy:
            self._looking.latest(
                lambda: session.service.agents.connected(session.caller),
                self._show_agents,
                lambda _: None,  # the header says that the log cannot be read
            )

    def _show_agents(self, found: list[Connected]) -> None:
        if found != list(self.view.agents):
            self.view = replace(self.view, agents=tuple(found))
        elif found:
            self.watch_view()  # the ages have changed

    def happened(self, news: News) -> None:
        """Read the bindings again after a change of settings; check the health of changed ones."""
        self._look_around()
        if news.configures:
            self.reload()
        elif self.is_current:
            changed = {one.binding_key for one in (*news.changes(self), *news.embedded)}
            for binding in self.view.bindings:
                if binding.enabled and binding.key in changed:
                    self._ask_health(binding.key)
        elif news.changes(self):
            self.reload()

    def _ask_all(self) -> None:
        for binding in self.view.bindings:
            if binding.enabled:
                self._ask_health(binding.key)
        self._draw_together()

    async def answered(self) -> None:
        """Wait until bindings and health are drawn together."""
        await self._drawing.delivered()

    def _draw_together(self) -> None:
        """Draw once all reads have ended, or what has arrived after `AT_ONCE_SECONDS`."""

        async def come() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_ONCE_SECONDS):
                    await self.reads.delivered()
                    for asked in (*self._health.values(), self._finding):
                        await asked.delivered()

        if not self._drawing.busy:
            self._drawing.latest(come, lambda _: self._draw(), self.fail)

    def _ask_health(self, key: str) -> None:
        health, caller = self._service.health, self.session.caller
        work = self._health.setdefault(key, Background(self, f"health:{key}"))
        work.latest(lambda: health(caller, key), self._show_health, self.fail)

    def _show_health(self, health: BindingHealth) -> None:
        self.view = replace(self.view, healths={**self.view.healths, health.key: health})

    def _show_findings(self, findings: tuple[DiscoveredMemory, ...]) -> None:
        self.view = replace(self.view, findings=findings)

    def watch_view(self) -> None:
        """Draw, unless `_draw_together` is about to."""
        if self.is_mounted and not self._drawing.busy:
            self._draw()

    def _draw(self, stood: TreeRow | None = None) -> None:
        """Draw the tree with the cursor on the row `stood`, by default its present row."""
        stood = stood or self._row
        self._rows = list(rows_of(self.view, self.state))
        self._tree.show(
            [row.content for row in self._rows],
            self._place_of(stood),
            passed={n for n, row in enumerate(self._rows) if not row.selectable},
        )
        self._draw_detail()

    def _place_of(self, stood: TreeRow | None) -> int | None:
        """Return the index of a row, else of its binding, else of the first binding.

        A finding that was added is found as its binding.
        """
        added = self.view.holder(stood.finding) if stood and stood.finding else None
        if added is not None:
            stood = TreeRow(Content(""), added)
        own = stood.binding.key if stood and stood.binding else ""
        first: dict[str, int] = {}
        for place, row in enumerate(self._rows):
            if stood is not None and row.key == stood.key:
                return place
            if row.binding is not None:
                first.setdefault(row.binding.key, place)
        return first.get(own, next(iter(first.values()), None))

    def _show_added(self, added: Sequence[BindingView]) -> None:
        """List added bindings before the reload, with the cursor on the first for the next key."""
        self.view = replace(self.view, bindings=(*self.view.bindings, *added))
        self._draw(TreeRow(Content(""), added[0]))

    def watch_state(self, before: AppState, now: AppState) -> None:
        """Update embeddings, and the highlighted path to the serving binding."""
        super().watch_state(before, now)
        if now.embeddings != before.embeddings:
            self._show_embeddings(now.embeddings)
        if now.resolution != before.resolution or now.scope != before.scope:
            self.watch_view()

    def _show_embeddings(self, heard: Mapping[str, Embedding]) -> None:
        healths = dict(self.view.healths)
        for key in healths.keys() & heard.keys():
            health = healths[key].health.model_copy(update={"embedding": heard[key]})
            healths[key] = healths[key].model_copy(update={"health": health})
        self.view = replace(self.view, healths=healths)

    @property
    def _row(self) -> TreeRow | None:
        index = self._tree.highlighted
        return self._rows[index] if index is not None and index < len(self._rows) else None

    def _draw_detail(self) -> None:
        self._drawn = self._row
        row = self._row or TreeRow(Content(""))
        view, state = self.view, self.state
        detail = self.query_one("#binding-detail", Fitted)
        detail.fit(lambda width: row_detail(row, view, state, width))
        missing: dict[Need, str] = {Need.TABLE: ""}
        if not view.addable:
            missing[Need.FINDING] = "" if view.findings is not None else _LOOKING
        if row.binding is None:
            missing[Need.BINDING] = ""
            if not row.company:
                missing[Need.SETTINGS] = ""
        else:
            missing |= _unfit(row.binding, view)
        self.missing = missing
        self.labels = {"bindings.add": "add this" if row.finding else "add"}
        more = map(ACTIONS.__getitem__, ("app.palette", *(f"bindings.{verb}" for verb in _MORE)))
        self.query_one("#binding-more", KeyFooter).entries = (
            action_entries(more, state.keymap, self.why_disabled, {}) if row.binding else ()
        )

    def footer(self) -> list[Action]:
        """Return the actions of the footer; on the company's row its settings come first."""
        shown = super().footer()
        is_company = self._row is not None and self._row.company
        own = [ACTIONS["bindings.configure"], ACTIONS["bindings.add"], ACTIONS["app.limits"]]
        return [*own, shown[-1]] if is_company else shown

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the details of the row, unless they are shown already."""
        event.stop()
        if self._row is not self._drawn:
            self._draw_detail()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go into the details."""
        event.stop()
        self.query_one(".split").add_class("-opened")
        self.query_one(DetailPane).focus()

    def action_back(self) -> None:
        """Go back from the details to the tree."""
        self.query_one(".split").remove_class("-opened")
        self._tree.focus()

    def action_open(self) -> None:
        """Open the file of a problem or finding; a binding shows its records."""
        if (row := self._row) is None:
            return
        if row.agent is not None:
            self._open_agent(row.agent)
            return
        place = row.problem.location if row.problem else None
        if row.finding is not None:
            place = Location(path=row.finding.path)
        if place is not None:
            open_file(self, place)
        elif row.binding is not None:
            self.action_browse()

    def _open_agent(self, agent: Connected) -> None:
        """Replay the run of an agent; without a run, show its operations."""
        from memtui.screens.runs import ReplayScreen

        if agent.run_id is not None:
            self.talk(self.visit(ReplayScreen(self.state, agent.run_id)))
        else:
            own = format_filter(Filter(principal=agent.principal, channel=agent.channel))
            whole = Scope(company_id=self.session.caller.company_id)
            last = agent.last_answer.operation_id if agent.last_answer is not None else None
            self.post_message(GoTo("operations", own, scope=whole, select=last))

    def action_browse(self) -> None:
        """Show the records of this binding."""
        self.post_message(GoTo("records", binding_key=self._binding.key))

    def action_prune(self) -> None:
        """Review the prune candidates of the whole company in Records."""
        whole = Scope(company_id=self.session.caller.company_id)
        self.post_message(GoTo("records", filter_line="", scope=whole, then="records.prune"))

    def action_check(self) -> None:
        """Check the health of every binding again."""
        self.view = replace(self.view, healths={})
        self._ask_all()

    def read_again(self) -> None:
        """Read the bindings again, and search again for memories on this machine."""
        self.view = replace(self.view, findings=None)
        super().read_again()

    def action_copy(self) -> None:
        """Copy the selected row."""
        if (row := self._row) is not None:
            self.copy(row.content.plain, "Copied the row.")

    @property
    def _service(self) -> Bindings:
        return self.session.service.bindings

    @property
    def _binding(self) -> BindingView:
        if self._row is None or self._row.binding is None:
            raise NotFound(Need.BINDING.value)
        return self._row.binding

    async def _change(
        self, change: Callable[..., Awaitable[T]], *given: Any, said: str, **named: Any
    ) -> T:
        """Change the configuration, say what was done, and read everything again."""
        return await self.configure(partial(change, self.session.caller, *given, **named), said)

    async def action_add(self) -> None:
        """Add the selected finding as a read-only binding, else a new binding."""
        finding = self._row.finding if self._row else None
        if finding is None:
            await self._add_own()
        elif not finding.usable:
            why = finding.problems[0] if finding.problems else "It cannot be read."
            self.toast(f"{finding.title} cannot be added: {why}", severity="warning")
        else:
            await self._add_found(finding)

    async def action_add_all(self) -> None:
        """Add all usable findings as read-only bindings, after one yes."""
        found = self.view.addable
        named = [f"{found_title(one)}  {found_place(one)}".strip() for one in found[:_NAMED]]
        if len(found) > _NAMED:
            named.append(f"and {len(found) - _NAMED} more")
        asked = Confirm(
            f"Add {counted(len(found), 'memory store')} found on this machine, read-only?",
            detail="\n".join([*named, "", "Nothing in them is changed."]),
            verb="add all",
            otherwise="leave them",
        )
        if not await self.ask(asked):
            return
        service, caller = self._service, self.session.caller
        done = await self.change(lambda: service.add_found(caller, found))
        if done.added:
            keys = ", ".join(view.key for view in done.added)
            label = self.state.keymap.label
            everywhere, target = label("app.everywhere"), label("bindings.target")
            self.toast(
                f"Added {keys}, read-only. All bindings are shown at once; {everywhere} shows one "
                f"again, and {target} on screen 1 sets whom one serves."
            )
            self._show_added(done.added)
        for problem in done.problems:
            self.toast(problem, severity="warning")
        for view in done.added:
            if view.capabilities.chosen_owners:  # other stores are one owner's
                await self._ask_target(view.key, _NOBODY)
        self.post_message(ConfigurationChanged())
        self.load()
        if done.added:
            self.post_message(GoTo("records", everywhere=True))

    async def _add_found(self, finding: DiscoveredMemory) -> None:
        """Add a finding as a read-only binding, directly or with a form of its settings."""
        from memtui.screens.bindings.form import BindingDraft, written

        asked = Confirm(
            f"Add {found_title(finding)} as the read-only binding {finding.key}?",
            detail=f"{short_path(finding.path)}\nNothing in it is changed.",
            verb="add",
            aside="look through its settings",
            otherwise="leave it",
        )
        if (answer := await self.ask(asked)) is None:
            return
        if answer:
            said = f"Added {finding.key}, read-only. R shows its records."
            found = finding.key, finding.provider, finding.config
            add, serves = self._service.add, await self._choose_target(finding.key, _NOBODY)
            mode = {"read_only": True, "serves": serves}
            self._show_added([await self._change(add, *found, **mode, said=said)])
        elif view := await self._view_of(finding.provider):
            draft = BindingDraft(finding.key, read_only=True, values=written(view, finding.config))
            await self._fill_whole(view, draft)

    async def _add_own(self) -> None:
        """Ask for a provider and its settings; going back keeps the input of each form."""
        from memtui.screens.bindings.form import BindingDraft, written

        begun: dict[str, BindingDraft] = {}
        drafts: dict[str, BindingDraft] = {}
        while True:
            asked = Choose("What should the new binding open?", self._providers)
            if (view := await self.ask(asked)) is None:
                if drafts == begun or await self.ask(throw_away()):
                    return
            elif not view.usable:
                self.toast(view.problem or "", severity="warning")
            else:
                draft = drafts.get(view.key) or begun.setdefault(
                    view.key, BindingDraft(view.key, values=written(view, {}))
                )
                left = await self._fill(view, draft)
                if left is None:
                    return
                drafts[view.key] = left

    async def _providers(self) -> list[Choice[ProviderView]]:
        views = [await self._service.provider_view(name) for name in self._service.providers()]
        return [Choice(one, _offer(one), one.key) for one in views]

    async def _fill(
        self, view: ProviderView, draft: BindingDraft, *, configures: bool = False
    ) -> BindingDraft | None:
        """Ask until a binding is added or configured; return the draft if the person goes back.

        After an error the form opens again with the same input.
        """
        from memtui.screens.bindings.form import BindingForm
        from memtui.service.review.proposals import AwaitsSecond

        service, caller = self._service, self.session.caller
        starts: str | None = None

        async def check(key: str, config: Json, *, read_only: bool) -> Health:
            nonlocal starts
            starts = await self._agreed(key, view.key, config, starts)
            mode = {"read_only": read_only, "configures": configures}
            return await service.trial(caller, key, view.key, config, **mode, starts=starts)

        title, verb = f"New binding: {view.key}", "add"
        if configures:
            title, verb = f"Settings of {view.key}·{draft.key}", "save"
        while True:
            form = BindingForm(title, view, draft, check, verb=verb, has_key=not configures)
            answer = await self.ask(form)
            if answer is None or answer.config is None:
                return answer.draft if answer else draft
            draft, key = answer.draft, answer.draft.key
            try:
                if configures:
                    said = f"Saved the settings of {key}."
                    await self._change(
                        service.update, key, config=answer.config, starts=starts, said=said
                    )
                else:
                    said = f"Added {key}. R shows its records."
                    new = key, view.key, answer.config
                    serves = await self._choose_target(key, _NOBODY)
                    mode = {"read_only": draft.read_only, "serves": serves, "starts": starts}
                    self._show_added([await self._change(service.add, *new, **mode, said=said)])
            except AwaitsSecond as error:
                self.fail(error)
                return None
            except MemtuiError as error:
                self.fail(error)
            else:
                return None

    async def _agreed(self, key: str, provider: str, config: Json, known: str | None) -> str | None:
        """Return the command that a binding starts, after a yes to it; None: there is none to ask.

        `known` has its yes already. Raises `Denied` after a no.
        """
        found = await self._service.to_agree(self.session.caller, key, provider, config)
        if found in {None, known}:
            return found
        asked = Confirm(
            f"Start this program for {key}, now and whenever it is opened?",
            detail=found or "", verb="start", otherwise="leave it",
        )  # fmt: skip
        if not await self.ask(asked):
            raise Denied("Nothing was started.")
        return found

    async def action_configure(self) -> None:
        """Change the settings of this binding's provider, or of the company."""
        from memtui.screens.bindings.form import BindingDraft, written

        if self._row is not None and self._row.company:
            await self._configure_company()
            return
        binding = self._binding
        if view := await self._view_of(binding.provider_key):
            draft = BindingDraft(binding.key, binding.read_only, written(view, binding.config))
            await self._fill_whole(view, draft, configures=True)

    async def _configure_company(self) -> None:
        from memtui.screens.bindings.company import CompanyForm

        companies, caller = self.session.service.companies, self.session.caller
        company = await self.wait("reading the company", lambda: companies.get(caller))
        saved = await self.ask(CompanyForm(company, partial(companies.update, caller)))
        if isinstance(saved, MemtuiError):
            self.fail(saved)
        elif saved is not None:
            self.toast(f"Saved the settings of {saved.name}.")
            self.post_message(ConfigurationChanged())

    async def _view_of(self, provider: str) -> ProviderView | None:
        """Return the settings of a provider; None: it cannot be used, which a toast explains."""
        if provider in self._known:
            return self._known[provider]
        view = await self.wait(
            f"reading the settings of {provider}", lambda: self._service.provider_view(provider)
        )
        if not view.usable:
            self.toast(view.problem or "", severity="warning")
            return None
        self._known[provider] = view
        return view

    async def _fill_whole(
        self, view: ProviderView, begun: BindingDraft, *, configures: bool = False
    ) -> None:
        """Show the form until it is done, or the person agrees to discard the input."""
        left = await self._fill(view, begun, configures=configures)
        while left is not None and left != begun and not await self.ask(throw_away()):
            left = await self._fill(view, left, configures=configures)

    async def _update(self, question: Confirm | None, said: str, **changes: bool) -> None:
        key = self._binding.key
        if question is None or await self.ask(question):
            await self._change(self._service.update, key, said=said, **changes)

    async def action_enable(self) -> None:
        """Enable the binding, or after a yes disable it."""
        key = self._binding.key
        if not self._binding.enabled:
            await self._update(None, f"Enabled {key}.", enabled=True)
            return
        question = Confirm(
            f"Disable {key}?",
            detail="It is not queried until it is enabled; its records stay.",
            verb="disable",
        )
        await self._update(question, f"Disabled {key}. u enables it again.", enabled=False)

    async def action_read_only(self) -> None:
        """Make the binding read-only, or after a yes writable."""
        key = self._binding.key
        if not self._binding.read_only:
            await self._update(None, f"{key} is read-only now.", read_only=True)
            return
        question = Confirm(
            f"Let {key} be changed?",
            detail="Its files or its service will be written to by edits, adds and forgets.",
            verb="make writable",
        )
        await self._update(question, f"{key} can be changed now.", read_only=False)

    async def action_target(self) -> None:
        """Choose a target for this binding."""
        await self._ask_target(self._binding.key)

    async def _targets(self) -> list[Choice[tuple[str, str]]]:
        """Return whom a binding can serve, the project of the working folder first."""
        session, here = self.session, ("project", project_here() or "")
        serving = {
            (target.target_type, target.target_id): f"{one.key} serves it now"
            for one in await self._service.all(session.caller)
            for target in one.targets
        }
        own = [Choice(here, f"{here[1]}  — this folder", "project")] if here[1] else []
        others = (one for one in await read_targets(session) if one.value != here)
        return [replace(one, sentence=serving.get(one.value, "")) for one in (*own, *others)]

    async def _choose_target(self, key: str, hint: str = "") -> tuple[str, str] | None:
        """Ask whom a binding serves from now on; None: nobody more."""
        asked: Choose[tuple[str, str]] = Choose(
            f"Who should {key} serve? {hint}".rstrip(),
            self._targets,
            placeholder="type a project or an agent",
            offer=offered_target,
        )
        return await self.ask(asked)

    async def _ask_target(self, key: str, hint: str = "") -> None:
        if (chosen := await self._choose_target(key, hint)) is not None:
            sort, name = chosen
            served = "the whole company" if sort == "company" else f"{sort} {name}"
            said = f"{key} serves {served} now."
            await self._change(self._service.set_target, sort, name, key, said=said)

    async def action_clear_target(self) -> None:
        """Remove the selected target of this binding, else ask which."""
        binding = self._binding
        target = self._row.target if self._row else None
        if not binding.targets:
            self.toast(f"{binding.key} serves nobody.", severity="warning")
        elif target is None and len(binding.targets) == 1:
            target = binding.targets[0]
        elif target is None:
            choices = [Choice(one, target_words(one)) for one in binding.targets]
            target = await self.ask(Choose(f"Who should {binding.key} no longer serve?", choices))
        if target is not None:
            named = target.target_type, target.target_id
            said = f"{binding.key} no longer serves {target_words(target)}."
            await self._change(self._service.clear_target, *named, said=said)

    async def action_capture(self) -> None:
        """Choose what hooks may write to this binding."""
        binding = self._binding
        choices = [Choice(one, words) for one, words in CAPTURE_WORDS.items()]
        chosen = await self.ask(
            ChooseAll(
                f"What does {binding.key} capture?",
                choices,
                binding.captures,
                "Hooks write these here by themselves. Nothing else is captured.",
            )
        )
        if chosen is not None and chosen != binding.captures:
            capture = {one: one in chosen for one in CAPTURE_WORDS}
            words = capture_words(chosen) or "nothing"
            said = f"{binding.key} captures {words} now."
            await self._change(self._service.update, binding.key, capture=capture, said=said)

    async def action_embedding(self) -> None:
        """Allow or stop sending texts to a model's address, or switch embedding of new texts."""
        binding, service = self._binding, self.session.service
        key, found = binding.key, self.view.embedding(binding.key)
        if found is None:
            self.toast(
                f"{key} is searched by words alone; e sets a model for its embedding.",
                severity="warning",
            )
        elif not found.agreed and found.address:
            question = Confirm(
                f"Send the texts of {key} to {found.address}?",
                detail="Each is sent once to be embedded, and every question to find by; secrets "
                f"are taken out first. Its model there is {found.model.rpartition('#')[2]}.",
                verb="send them",
                otherwise="send nothing",
                final=True,
            )
            if await self.ask(question):
                said = f"The texts of {key} are embedded at {found.address} now."
                await self._change(service.embedding.agree, key, found.address, said=said)
        else:
            await self._choose_embedding(binding, found)

    async def _choose_embedding(self, binding: BindingView, found: Embedding) -> None:
        key, service = binding.key, self.session.service
        switch = "stop embedding new texts" if binding.embeds else "embed new texts again"
        choices = [Choice("", switch)]
        choices += [Choice(one, f"send no more texts to {one}") for one in binding.agreed]
        chosen = await self.ask(Choose(f"{key}: {embedding_words(found)}", choices))
        if chosen == "":
            said = f"New texts in {key} are {'not ' if binding.embeds else ''}embedded."
            embeds = not binding.embeds
            await self._change(self._service.update, key, embeds=embeds, said=said)
        elif chosen is not None:
            agree = service.embedding.agree
            said = f"The texts of {key} no longer go to {chosen}."
            await self._change(agree, key, chosen, agreed=False, said=said)

    async def action_sync(self) -> None:
        """Let the provider read its outside source again, and show the result."""
        session, key = self.session, self._binding.key
        self.toast(f"{key} is being read again …")
        answer = await self.change(lambda: session.service.sync(session.caller, key))
        self.load()
        self.app.push_screen(Sheet(f"{key} was read again", sync_content(answer)))

    def action_profile(self) -> None:
        """Show the provider's profile of the scope."""
        session, key, scope = self.session, self._binding.key, self.state.record_scope
        waiting = display("Asking …", style=DIM)

        async def read() -> Content:
            answer = await session.service.profile(session.caller, scope, binding_key=key)
            return profile_content(answer)

        self.app.push_screen(Sheet(f"What {key} says of {whose(scope)}", waiting, read=read))

    async def action_namespaces(self) -> None:
        """Show the namespaces of the binding."""
        from memtui.screens.namespaces import NamespacesScreen

        await self.visit(NamespacesScreen(self.state, self._binding))
        self.load()

    async def action_conformance(self) -> None:
        """Check the memory plugin against its contract."""
        from memtui.screens.conformance import Conformance

        await self.visit(Conformance(self.state, self._binding))
        self.load()

    async def action_migrate(self) -> None:
        """Ask for the binding to move to, and show the migration."""
        from memtui.screens.migration import Migration

        source = self._binding
        choices = [
            Choice(one, f"{one.key}  {_obstacle(one)}".rstrip(), one.provider_key)
            for one in self.view.bindings
            if one.key != source.key
        ]
        asked = Choose(f"Move the records of {source.key} to which binding?", choices)
        if (destination := await self.ask(asked)) is not None:
            await self.visit(Migration(self.state, source, destination))
            self.load()

    async def action_in_sync(self) -> None:
        """Ask for the other binding, and show the sync."""
        from memtui.screens.in_sync import InSyncScreen

        own = self._binding
        known = dict(self.view.steps_of(own.key))
        choices = []
        for one in sorted(self.view.bindings, key=lambda one: one.key not in known):
            if one.key != own.key and _VAULT in {one.provider_key, own.provider_key}:
                note = "(kept in sync)" if one.key in known else _obstacle(one)
                choices.append(Choice(one, f"{one.key}  {note}".rstrip(), one.provider_key))
        if not choices:
            self.toast(
                f"There is no vault to keep {own.key} in sync with; a adds one.",
                severity="warning",
            )
            return
        asked = Choose(f"Keep {own.key} in sync with which binding?", choices)
        if (other := await self.ask(asked)) is not None:
            turned = own.provider_key != _VAULT
            if other.key in known:
                turned = known[other.key].left != own.key
            both = (other, own) if turned else (own, other)
            await self.visit(InSyncScreen(self.state, *both))
            self.load()

    async def action_remove(self) -> None:
        """Remove the binding, after a yes."""
        binding = self._binding
        serving = ", ".join(target_words(one) for one in binding.targets)
        detail = "Its records stay where they are; the log keeps its operations."
        question = Confirm(
            f"Remove the binding {binding.provider_key}·{binding.key}?",
            detail=f"It serves {serving}.\n{detail}" if serving else detail,
            verb="remove",
        )
        if await self.ask(question):
            said = f"Removed {binding.key}; its records are where they were."
            await self._change(self._service.remove, binding.key, said=said)


def _unfit(binding: BindingView, view: BindingsView) -> dict[Need, str]:
    """Return the needs that are not met with a binding, with reasons."""
    lacks = {
        Need.NAMESPACES: not binding.capabilities.namespaces,
        Need.SYNC: not binding.capabilities.sync,
        Need.PROFILE: not binding.capabilities.profile,
        Need.PLUGIN: binding.provider_key not in view.plugins,
        Need.DESTINATION: all(one.key == binding.key for one in view.bindings),
    }
    unfit = {need: "" for need, lacking in lacks.items() if lacking}
    if binding.read_only or not binding.enabled:
        why = "read-only; ! on it in Bindings opens it" if binding.read_only else "disabled"
        unfit.setdefault(Need.SYNC, f"The binding {binding.key} is {why}.")
    return unfit


def _obstacle(binding: BindingView) -> str:
    """Return a note why records cannot be moved into a binding; empty: they can."""
    if not binding.enabled:
        return "(off)"
    if binding.read_only or not binding.capabilities.writable:
        return "(read-only)"
    return ""


def _offer(view: ProviderView) -> str:
    """Return what a provider opens, with the package of a foreign one, or its problem."""
    if not view.usable:
        return f"✗ {view.problem}"
    return f"{view.opens} (package {view.package})" if view.foreign else view.opens
