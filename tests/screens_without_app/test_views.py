from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from memtui.backends.discovery import DiscoveredMemory
from memtui.contract import (
    Capabilities,
    ExplainStage,
    Explanation,
    Health,
    Location,
    Matching,
    Problem,
    QueryRequest,
    RecordHandle,
    Scope,
    Snippet,
    SourceKind,
    SourceRef,
    Usage,
)
from memtui.screens.base import scope_view
from memtui.screens.bindings.view import BindingsView, row_detail, rows_of
from memtui.screens.keymap import Keymap, load_keymap
from memtui.screens.open_source import source_filter
from memtui.screens.query.screen import (
    QueryView,
    card_contents,
    cost_content,
    detail_content,
    explanation_content,
    options_line,
    state_of,
    title_line,
    words_of,
)
from memtui.screens.state import AppState, Phase, is_first_start, offer
from memtui.service import BindingHealth, BindingView, QueryAnswer, Resolution, TargetView
from memtui.service.answers import BindingOutcome
from memtui.widgets.detail_lines import marked
from memtui.widgets.display import display
from memtui.widgets.frame import binding_content, path_content
from tests.screens.hostile import HOSTILE, assert_content_harmless

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
WIDTH = 60


def state(**changes: object) -> AppState:
    base = AppState(
        phase=Phase.READY,
        scope=Scope(company_id="acme", project_id="p"),
        resolution=Resolution(binding_key="b", provider_key="vault", reason="for the project p"),
        clock=lambda: NOW,
        zone=UTC,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def binding(key: str, *targets: tuple[str, str]) -> BindingView:
    return BindingView(
        binding_id=key,
        key=key,
        provider_key="vault",
        config={"path": f"/notes/{key[:40]}"},
        enabled=True,
        read_only=False,
        capabilities=Capabilities(browse=True),
        targets=tuple(TargetView(target_type=sort, target_id=name) for sort, name in targets),
        created_at=NOW,
    )


def health(key: str, problems: int = 0, text: str = "bad frontmatter") -> BindingHealth:
    problem = Problem(message=text, location=Location(path=f"/notes/{text[:20]}.md", line=7))
    return BindingHealth(
        key=key,
        health=Health(message=text, records=3, problems=(problem,) * problems),
        checked_at=NOW,
        latencies_ms=(1.0, 3.0, 2.0),
    )


def snippet(text: str, **changes: object) -> Snippet:
    values: dict[str, object] = {
        "handle": RecordHandle(provider_key="vault", provider_record_id=text[:200] or "x"),
        "text": text,
        "scope": Scope(company_id="acme"),
        "score": 0.91,
        "title": text[:5_000],
        "topic": text[:5_000],
        "tags": (text[:5_000],),
        "created_by": text[:5_000],
        "created_at": NOW,
        "location": Location(path=text[:5_000]),
        "source": SourceRef(
            kind=SourceKind.EXTERNAL_DOCUMENT, company_id="acme", external_ref=text[:5_000]
        ),
    }
    return Snippet.model_validate(values | changes)


def answered(*snippets: Snippet, usage: tuple[Usage, ...] = ()) -> QueryView:
    asked = BindingOutcome(
        binding_key="b", provider_key="x", status="ok", operation_ids=("o",), usage=usage
    )
    return QueryView(
        request=QueryRequest(scope=state().record_scope, query="deploy branch"),
        answer=QueryAnswer(bindings=(asked,), snippets=snippets, latency_ms=18),
        asked=1,
        spent=usage,
    )


def test_the_tree_lights_the_path_that_serves_the_scope() -> None:
    view = BindingsView(
        (binding("a", ("company", "acme")), binding("b", ("project", "p"), ("agent", "x"))),
        findings=(),
    )
    shown = [row.content.plain for row in rows_of(view, state())]
    assert shown[0].endswith("used here: the binding `b` (for the project p)")
    assert [line for line in shown if "◀" in line] == [
        "└─ b ◀  vault  ○ checking",
        "   → project p  ◀",
    ]
    bindings = (binding("a"), binding("longer"))
    healths = {"a": health("a", 0), "longer": health("longer", 60)}
    drawn = [row.content.plain for row in rows_of(BindingsView(bindings, healths, ()), state())]
    assert len({one.index(" vault ") for one in drawn if " vault " in one}) == 1


def test_problems_are_counted_listed_and_placed() -> None:
    view = BindingsView((binding("b"),), {"b": health("b", 60)}, ())
    rows = list(rows_of(view, state()))
    shown = [row.content.plain for row in rows]
    assert "60 problems" in shown[1]
    assert "!" in shown[2]
    assert ".md:7" in shown[2]
    assert any("and 10 more" in one for one in shown)
    problem = next(row for row in rows if row.problem)
    assert "o opens it" in row_detail(problem, view, state(), WIDTH).plain


def test_the_details_of_a_binding_name_the_keys_in_force() -> None:
    view = BindingsView((binding("b"),), findings=())
    row = next(row for row in rows_of(view, state()) if row.binding)
    keymap = load_keymap({"review.rules": "f8", "bindings.configure": "f9"})
    for moved, rules, changes in ((Keymap(), "H", "e"), (keymap, "f8", "f9")):
        shown = row_detail(row, view, state(keymap=moved), WIDTH * 3).plain
        assert f"no rule holds writes; Q, then {rules}, sets rules" in shown
        assert f"Config   {changes} changes it" in shown


def test_findings_are_offered_and_unusable_ones_say_so() -> None:
    usable = DiscoveredMemory(
        provider="vault",
        key="vault-notes",
        title="Notes",
        path="/n",
        config={"path": "/n"},
        why="w",
    )
    broken = DiscoveredMemory(
        provider="mcp", key="mcp", title="M", path="/m", why="w", problems=("torn",)
    )
    view = BindingsView(findings=(usable, broken))
    rows = [row for row in rows_of(view, state()) if row.finding]
    assert "a adds it" in row_detail(rows[0], view, state(), WIDTH).plain
    assert "cannot be added" in row_detail(rows[1], view, state(), WIDTH).plain
    assert offer((usable, broken), "1").startswith("Found 1 memory store on this machine. 1 shows")
    assert offer((broken,), "1") == ""


def test_a_place_that_two_providers_open_is_added_once() -> None:
    notes, lines = (
        DiscoveredMemory(
            provider=one, key=one, title="Notes", path="/n", config={"path": "/n"}, why="w"
        )
        for one in ("vault", "basic-memory")
    )
    view = BindingsView(findings=(notes, lines))
    assert [row.finding for row in rows_of(view, state()) if row.finding] == [notes, lines]
    assert view.addable == (notes,)


def test_a_finding_that_was_added_stands_as_its_binding() -> None:
    found = DiscoveredMemory(
        provider="vault",
        key="k",
        title="Notes",
        path="/notes/b",
        config={"path": "/notes/b"},
        why="w",
    )
    before = BindingsView((binding("a"),), findings=(found,))
    after = BindingsView((binding("a"), binding("b")), findings=(found,))
    assert [row.finding for row in rows_of(before, state()) if row.finding] == [found]
    assert not any(row.finding for row in rows_of(after, state()))
    assert after.holder(found) == binding("b")


def test_a_first_start_is_one_empty_binding() -> None:
    empty = health("b").model_copy(update={"health": Health(records=0)})
    assert is_first_start(state(bindings=(binding("b"),), health=empty))
    assert not is_first_start(state(bindings=(binding("b"),), health=health("b")))
    assert not is_first_start(state(bindings=(binding("b"),)))


def test_a_card_names_rank_score_text_source_and_time() -> None:
    view = answered(snippet("Deploys happen from main", title=None, created_by="coding"))
    card = card_contents(view, state(), WIDTH)[0]
    assert card.plain.startswith("  1  0.910  Deploys happen from main")
    assert "0 s ago by coding" in card.plain
    assert [
        card.plain[span.start : span.end] for span in card.spans if "underline" in str(span.style)
    ]


def test_a_card_begins_below_the_heading_and_names_a_file_once() -> None:
    reference = SourceRef(
        kind=SourceKind.EXTERNAL_DOCUMENT, company_id="acme", external_ref="notes/deploy.md:2"
    )
    place = Location(path="/vault/notes/deploy.md", line=2)
    found = snippet("# Deploy\n\nFrom release.\n", title="Deploy", source=reference, location=place)
    card = card_contents(answered(found), state(), WIDTH)[0].plain
    assert card.splitlines()[0] == "  1  0.910  Deploy  From release."
    assert card.count("deploy.md:2") == 1


def test_a_match_deep_in_a_text_is_brought_into_the_card() -> None:
    view = answered(snippet("filler " * 500 + "the deploy branch", title=None))
    card = card_contents(view, state(), WIDTH)[0].plain
    assert "the deploy branch" in " ".join(card.split())


@pytest.mark.parametrize("word", ["deploy", "Deploys", "DEPLOYED", "deploy_branch"])
def test_words_are_marked_whatever_their_case_or_end(word: str) -> None:
    assert marked(display(f"we {word} it"), words_of("how do we deploy?")).spans


def test_costs_are_words_where_there_is_no_number() -> None:
    paid = Usage(provider="x", input_tokens=212, embedding_tokens=40, cost_usd=Decimal("0.0000312"))
    assert "no tokens used · 18 ms" in cost_content(answered()).plain
    assert "tokens 212 in · 40 embedded · $0.0000312" in cost_content(answered(usage=(paid,))).plain
    free = Usage(provider="x", input_tokens=1)
    assert "unpriced" in cost_content(answered(usage=(free,))).plain


def test_each_state_says_what_to_do_next() -> None:
    assert state_of(QueryView(past=())) == (
        "empty",
        "Nothing was asked here yet.",
        "Write a question above; every result names its source, every question its cost.",
    )
    nothing = state_of(answered())
    failed = state_of(QueryView(error="mem0 is down."))
    assert nothing is not None
    assert nothing[1] == "No record here answers that."
    assert failed is not None
    assert failed[:2] == ("error", "mem0 is down.")
    assert state_of(answered(snippet("x"))) is None


def test_results_of_another_scope_are_called_that() -> None:
    assert "another scope" not in title_line(answered(), state(), 80).plain
    moved = state(scope=Scope(company_id="acme"))
    assert "another scope" in title_line(answered(), moved, 80).plain
    assert "the whole company" in options_line(QueryView(), moved).plain


def test_a_short_title_names_what_changed_rather_than_the_question() -> None:
    view = replace(answered(snippet("x")), changed=frozenset({("b", "x")}))
    moved = state(scope=Scope(company_id="acme"))

    def title(width: int) -> str:
        return title_line(view, moved, width).plain

    notes = "1 changed; r asks again · asked in another scope"
    assert title(120) == f"1 result for “deploy branch” · {notes}"
    assert title(76) == f"1 result for “deploy br…” · {notes}"
    assert title(60) == f"1 result · {notes}"
    assert title(40) == "1 result · 1 changed; r asks again · …"


def test_the_scope_bar_names_what_is_not_known_yet() -> None:
    assert scope_view(AppState()).word == "opening"
    assert scope_view(state()).word == "checking"
    assert scope_view(state(resolution=None, resolution_problem="x")).word == "no binding"
    view = scope_view(state(read_only=True, health=health("b")))
    assert view.parts == ("acme", "p")
    assert "read-only" in binding_content(view).plain


def test_a_search_as_agents_search_says_so() -> None:
    view = QueryView(matching=Matching.AGENTS)
    assert "as its agents search" in options_line(view, state()).plain
    assert "agents" not in options_line(QueryView(), state()).plain


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ({"kind": "issue_comment", "issue_id": "31", "comment_id": "2"}, "issue:31"),
        ({"kind": "run", "run_id": "4412"}, "run:4412"),
        ({"kind": "manual_note"}, "source:manual_note"),
    ],
)
def test_the_same_source_is_a_filter_line(source: dict[str, str], line: str) -> None:
    assert source_filter(SourceRef.model_validate({"company_id": "acme"} | source)) == line


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text])
def test_hostile_text_is_harmless_in_every_view(text: str) -> None:
    view = answered(snippet(text))
    for content in card_contents(view, state(), WIDTH):
        assert_content_harmless(content)
    assert_content_harmless(detail_content(view, state(), 0, WIDTH))
    assert_content_harmless(title_line(view, state(), WIDTH))
    stage = ExplainStage(name=text, detail=text, scores={text: 1.0})
    assert_content_harmless(explanation_content(Explanation(stages=(stage,)), {}, WIDTH))

    named = binding(text[:300], ("project", text[:300]))
    found = DiscoveredMemory(
        provider="vault",
        key="k",
        title=text,
        path=text,
        config={"p": text},
        why=text,
        problems=(text,),
    )
    healths = {named.key: health(named.key, 1, text)}
    tree = BindingsView((named,), healths, (Problem(message=text),), (found,))
    for row in rows_of(tree, state()):
        assert_content_harmless(row.content)
        assert_content_harmless(row_detail(row, tree, state(), WIDTH))

    scope = Scope(company_id="acme", project_id=text, run_id=text)
    bar = scope_view(state(scope=scope, resolution_problem=text))
    assert_content_harmless(path_content(bar))
    assert_content_harmless(binding_content(bar))
    assert_content_harmless(options_line(view, state(scope=scope)))
