"""Checks of a memory: which pass, fail or cannot be asked, and how one is recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memtui.config import Paths, Settings
from memtui.context.cost import TokenCounter
from memtui.contract import (
    Denied,
    Filter,
    ForgetRequest,
    Invalid,
    Location,
    NotFound,
    Problem,
    QueryRequest,
    RecordHandle,
    Scope,
    SourceRef,
    Unavailable,
    WriteRequest,
)
from memtui.presenters.format import junit
from memtui.service import Caller, Membership, MemoryService, Role, open_service
from memtui.service.context.contexts import ContextRequest
from memtui.service.home.survey import PurgeRequest
from memtui.service.operations.feedback import Verdict
from memtui.service.usecases.checking import (
    CheckReport,
    MemoryCheck,
    check_memory,
    lost_checks,
    read_checks,
    record_check,
    refuse_failures,
)
from tests.channels.cli.conftest import HOSTILE, assert_harmless
from tests.databases import ON_BOTH
from tests.service.fake import FakeAdapter, down

ANA = Caller(company_id="local", principal="user:ana", channel="cli")
APOLLO = Scope(company_id="local", project_id="apollo")
HERS = Scope(company_id="local", subject_id="ana")
SOURCE = SourceRef(kind="manual_note", company_id="local")


@pytest.fixture
async def service(
    paths: Paths, settings: Settings, fake: type[FakeAdapter]
) -> AsyncIterator[MemoryService]:
    """The company over a vault, with fact tables and an outside provider beside it."""
    opened = await open_service(paths, settings, providers={"fake": fake})
    await opened.bindings.add(ANA, "tables", "facts", {})
    await opened.bindings.add(ANA, "outside", "fake", {})
    yield opened
    await opened.close()


async def write(service: MemoryService, text: str, scope: Scope = APOLLO, **more: Any) -> str:
    given = {"scope": scope, "source": SOURCE, "content": text, **more}
    answer = await service.write(ANA, WriteRequest.model_validate(given))
    return answer.handles[0].provider_record_id


async def checked(
    service: MemoryService, text: str, by: Caller = ANA, **more: Any
) -> dict[str, str]:
    """Return the outcome of each check of a file, by its title; a reason follows a colon."""
    file = service.paths.data / "some.toml"
    file.write_text(text, "utf-8")
    report = await check_memory(service, by, file, **more)
    return {one.title: f"{one.outcome}: {one.why}".removesuffix(": ") for one in report.checks}


@ON_BOTH
async def test_what_an_answer_must_hold_and_must_not(service: MemoryService) -> None:
    first = await write(service, "We use PostgreSQL 16 as the database.")
    await write(service, "The database was MySQLite once.")
    found = await checked(
        service,
        f"""
        check = [
          {{ name = "holds", ask = "which database", holds = "postgresql  16", not = ["MySQL"] }},
          {{ name = "lacks", ask = "which database", holds = ["Oracle", "PostgreSQL"] }},
          {{ name = "has", ask = "which database", not = "MySQLite" }},
          {{ name = "part of a word", ask = "which database", holds = "MySQL" }},
          {{ name = "elsewhere", ask = "which database", project = "zeus", holds = "PostgreSQL" }},
          {{ name = "id", ask = "which database", records = "{first}", not_records = "other" }},
          {{ name = "no id", ask = "which database", not_records = "{first}", records = "other" }},
          {{ name = "no room", ask = "which database", holds = "PostgreSQL", tokens = 1 }},
          {{ name = "room", ask = "which database", holds = "PostgreSQL", tokens = 100 }},
          {{ unknown = "Oracle" }},
          {{ unknown = "MySQLite" }},
        ]
        """,
    )
    reasons = {title: why.partition(": ")[2] for title, why in found.items()}
    assert {title for title, why in found.items() if why == "pass"} == {
        "holds", "id", "room", "Oracle",
    }  # fmt: skip
    assert reasons["lacks"] == "“Oracle” is in none of 2 results"
    assert reasons["has"].startswith("“MySQLite” is in ")
    assert reasons["has"].endswith(" of default")
    assert reasons["no id"] == f"{first} was found; other is in none of 2 results"
    assert reasons["no room"] == "“PostgreSQL” is in none of 0 results"
    assert reasons["MySQLite"].startswith("“MySQLite” is in ")


async def test_scripts_without_blanks_and_other_forms_of_a_letter(service: MemoryService) -> None:
    await write(service, "我们使用数据库。 Größe ＸＬ, C++ and vim.")
    asks = {"数据库": "pass", "GRÖSSE XL": "pass", "c++": "pass", "vim": "pass", "größ": "fail"}
    text = "\n".join(
        f'[[check]]\nname = "{one}"\nask = "我们使用数据库 Größe vim"\nholds = "{one}"'
        for one in asks
    )
    found = await checked(service, text)
    assert {title: why.partition(":")[0] for title, why in found.items()} == asks


@ON_BOTH
async def test_the_context_and_the_value_of_a_key(service: MemoryService) -> None:
    await write(service, "editor: vim", kind="fact", binding_key="tables")
    await write(service, "tabs: 4", kind="fact", binding_key="tables")
    await write(service, "Answers briefly", HERS, kind="fact")
    found = await checked(
        service,
        """
        check = [
          { name = "context", context = "", user = "ana", holds = "answers briefly" },
          { name = "cut", context = "", user = "ana", holds = "answers briefly", tokens = 2 },
          { name = "in it", context = "", user = "ana", not = "Answers" },
          { name = "nobody's", context = "", holds = "x" },
          { key = "editor", value = "vim", project = "apollo", binding = "tables" },
          { name = "number", key = "Tabs", value = 4, project = "apollo", binding = "tables" },
          { name = "other", key = "editor", value = "ed", project = "apollo", binding = "tables" },
          { name = "none", key = "shell", value = "zsh", project = "apollo", binding = "tables" },
        ]
        """,
    )
    assert [found[one] for one in ("context", "editor", "number")] == ["pass"] * 3
    assert found["cut"] == "fail: “answers briefly” is not in the context"
    assert found["in it"].startswith("fail: “Answers” is in the context, ")
    assert found["nobody's"] == "error: A context is about a user, project or agent; name one."
    assert found["other"].startswith("fail: editor has another value, in ")
    assert "vim" not in found["other"]
    assert found["none"] == "fail: shell has no value"


async def test_a_provider_that_fails_is_an_error_and_neither_a_failure_nor_a_pass(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.set_target(ANA, "project", "apollo", "outside")
    fake.fault = down()
    report = await _report(
        service,
        """
        check = [
          { ask = "x", project = "apollo", holds = "x" },
          { unknown = "x", project = "apollo" },
          { key = "x", value = "y", project = "apollo" },
          { context = "", project = "apollo", user = "ana", not = "x" },
        ]
        """,
    )
    assert [one.outcome for one in report.checks] == ["error"] * 4
    assert {one.error_kind for one in report.checks} == {"Unavailable"}
    assert report.exit_code == 3
    assert report.words == "0 passed, 0 failed, 4 could not be asked"


async def _report(service: MemoryService, text: str, by: Caller = ANA) -> CheckReport:
    file = service.paths.data / "some.toml"
    file.write_text(text, "utf-8")
    return await check_memory(service, by, file)


async def test_nothing_passes_by_what_is_hidden(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    zeus = Scope(company_id="local", project_id="zeus")
    for project in ("apollo", "zeus"):
        await service.bindings.set_target(ANA, "project", project, "outside")
    await write(service, "The launch code is secretword", zeus)
    for one in (
        Membership(principal="user:ana", role=Role.OWNER),
        Membership(principal="user:bo", role=Role.MEMBER, project_id="apollo"),
    ):
        await service.members.set(ANA, one)
    text = """
        check = [
          { name = "not", ask = "launch code", project = "apollo", not = "secretword" },
          { unknown = "launch code", project = "apollo" },
          { name = "not id", ask = "launch code", project = "apollo", not_records = "none" },
          { name = "holds", ask = "launch code", project = "apollo", holds = "secretword" },
          { name = "no right", ask = "launch code", project = "zeus", holds = "x" },
        ]
        """
    by = Caller(company_id="local", principal="user:bo", channel="cli")
    found = await checked(service, text, by)
    for name in ("not", "not id", "launch code"):
        assert found[name].startswith("error: 1 of the results are hidden from user:bo")
    assert found["holds"].startswith("fail")
    assert found["no right"].startswith("error")
    assert "secretword" not in str(await _report(service, "[[check]]\nunknown='launch'", by))
    assert (await _report(service, text, by)).exit_code == 4


async def test_checks_are_no_use_of_a_memory(service: MemoryService) -> None:
    name = await write(service, "We deploy on Monday", kind="fact")
    before = await service.log.page(ANA, Filter())
    await checked(
        service,
        "check = [{ ask = 'deploy', project='apollo', holds = 'Monday' },"
        "{ context = 'deploy', project = 'apollo', holds = 'Monday' },"
        "{ key = 'x', value = 'y', project = 'apollo'}]",
        ANA.model_copy(update={"run_id": "run-1"}),
    )
    after = await service.log.page(ANA, Filter())
    assert [one.seq for one in after.operations] == [one.seq for one in before.operations]
    own = (await service.log.page(ANA, Filter(internal=True), limit=3)).operations
    assert {one.operation_type for one in own} == {"query", "context", "browse"}
    assert {one.request["purpose"] for one in own} == {"check"}
    assert all(one.internal and not one.handles and not one.scope.run_id for one in own)
    handle = RecordHandle(provider_key="vault", provider_record_id=name)
    provenance = await service.log.provenance(ANA, "default", handle)
    assert provenance.retrieval_count == 0
    assert (await service.runs.page(ANA, delivered=("default", name))).total == 0


async def test_secrets_are_masked_and_hostile_text_is_harmless(service: MemoryService) -> None:
    secret = "ghp_" + "a1B2" * 9
    report = await _report(
        service, f'[[check]]\nask = "token {secret}"\nholds = "{secret}"\nproject = "apollo"'
    )
    written = junit(report).decode()
    assert secret not in str(report.model_dump()) + written
    assert "[REDACTED" in written

    import json
    from xml.etree.ElementTree import fromstring

    hostile = json.dumps(HOSTILE + " ]]> <b> & \ufffe", ensure_ascii=True).replace("\\u007f", "")
    report = await _report(service, f"[[check]]\nask = {hostile}\nholds = {hostile}")
    written = junit(report).decode()
    assert_harmless(written)
    assert fromstring(written).attrib["failures"] == "1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("check = [", "is not valid TOML"),
        ("a = " + "[" * 5_000, "is not valid TOML"),
        ("", "has no check"),
        ("check = 3", "has no check"),
        ("[[chek]]\nask = 'x'", "There is no table chek; did you mean check?"),
        ("\n[[check]] # one\nask = 'x'\nholds = 'y'\n\n[[check]]\nask = 'x'\nhold = 'y'",
         ", line 6: There is no key hold; did you mean holds?"),
        ("[[check]]\nask = 3\nholds = 'x'", ", line 1: ask: it takes a text."),
        ("[[check]]\nask = 'x'\nholds = [1]", ", line 1: holds: it takes a text."),
        ("[[check]]\nask = 'x'\nholds = []", ", line 1: holds: it takes at least 1."),
        ("[[check]]\nask = ' '\nholds = 'x'", ", line 1: ask: it is empty."),
        ("[[check]]\nask = 'x'\nholds = 'x'\nwithin = '5'", "within: it takes a whole number."),
        ("[[check]]\nask = 'x'\nholds = 'x'\nwithin = true", "within: it takes a whole number."),
        ("[[check]]\nask = 'x'\nholds = 'x'\nwithin = 0", "within: it takes at least 1."),
        ("[[check]]\nask = 'x'", "ask needs holds or not or records or not_records."),
        ("[[check]]\nask = 'x'\nkey = 'y'", "a check has one of ask, context, unknown, key."),
        ("[[check]]\nunknown = 'x'\nnot = 'y'", "not does not go with unknown."),
        ("check = [{ask = 'x', holds = 'y', value = 3}]", ", check 1: value does not go with ask."),
        ("[[check]]\nkey = 'x'\nvalue = [1]", "value: it takes"),
        ("check = ['x']", ", check 1: write it as a table [[check]]."),
        ("\ufeff[[check]]\nask = 'x'", "line 1: ask needs holds"),
        ("# none yet", "has no check; write each as a table [[check]]"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(Invalid) as caught:
        read_checks(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.toml"):
        with pytest.raises(Invalid, match=str(path)):
            read_checks(path)


async def test_each_of_several_counts(service: MemoryService) -> None:
    name = await write(service, "We use PostgreSQL 16 as the database.")
    asks = {
        "holds": '["PostgreSQL", "Oracle"]', "not": '["Oracle", "PostgreSQL"]',
        "records": f'["{name}", "other"]', "not_records": f'["other", "{name}"]',
    }  # fmt: skip
    found = await checked(
        service,
        "".join(
            f"[[check]]\nname = '{one}'\nask = 'database'\nproject = 'apollo'\n{one} = {value}\n"
            for one, value in asks.items()
        ),
    )
    assert [one.partition(":")[0] for one in found.values()] == ["fail"] * 4


async def test_each_namespace_must_have_the_value(service: MemoryService) -> None:
    for topic, value in (("tools", "vim"), ("old", "ed")):
        text = f"editor: {value}"
        await write(service, text, kind="fact", topic=topic, binding_key="tables")
    check = "[[check]]\nkey = 'editor'\nvalue = 'vim'\nproject = 'apollo'\nbinding = 'tables'\n"
    for namespace, outcome in (("", "fail"), ("namespace = 'tools'", "pass")):
        report = await _report(service, f"{check}{namespace}")
        assert [one.outcome for one in report.checks] == [outcome]


async def test_how_many_results_are_asked_for(service: MemoryService) -> None:
    asks = ("unknown = 'a'", "ask = 'b'\nnot = 'x'", "unknown = 'c'\nwithin = 3")
    await _report(service, "\n".join(f"[[check]]\nproject = 'apollo'\n{one}" for one in asks))
    page = await service.log.page(ANA, Filter(internal=True), limit=100)
    found = {one.request.get("query"): one.request.get("top_k") for one in page.operations}
    assert [found[one] for one in "abc"] == [100, 10, 3]


def test_only_a_provider_that_failed_makes_an_error() -> None:
    place = Location(path="a.md")
    refuse_failures([Problem(message="unreadable", location=place),
                     Problem(message="no vectors", search_only=True)])  # fmt: skip
    with pytest.raises(Unavailable, match="down"):
        refuse_failures([Problem(message="down")])


def test_a_check_is_lost_that_passed_and_does_not_pass_now() -> None:
    check = MemoryCheck.model_validate({"unknown": "x"})

    def report(*outcomes: str) -> CheckReport:
        one = {"check": check, "title": "x"}
        checks = [{**one, "number": n, "outcome": now} for n, now in enumerate(outcomes, 1)]
        return CheckReport.model_validate({"file": "x", "checks": checks})

    before = report("pass", "pass", "pass", "fail", "error")
    after = report("pass", "fail", "error", "fail", "fail")
    assert [one.number for one in lost_checks(before, after)] == [2, 3]


async def test_tokens_are_those_of_the_texts(service: MemoryService) -> None:
    text = "We deploy on Monday"
    await write(service, text, title="When we deploy", summary="Deploys are on Monday")
    size = TokenCounter(service.settings.context_model).tokens(text)
    for most, outcome in ((size - 1, "fail"), (size, "pass")):
        check = f"[[check]]\nask = 'deploy'\nproject = 'apollo'\nholds = '{text}'\ntokens = {most}"
        assert [one.outcome for one in (await _report(service, check)).checks] == [outcome]


async def test_a_check_is_recorded_beside_comments(service: MemoryService) -> None:
    await write(service, "We deploy on Monday")
    answer = await service.query(ANA, QueryRequest(scope=APOLLO, query="when deploy"))
    for number, begins in enumerate(("", "# Checks of ours", "\ufeff# of an editor of Windows\n")):
        file = service.paths.data / f"{number}.toml"
        file.write_text(begins, "utf-8")
        for said in (f"Recorded in {file}.", f"{file} has this check already."):
            assert await record_check(service, ANA, answer.operation_id, file) == said
        assert [one.ask for one in read_checks(file)] == ["when deploy"]
        assert file.read_text("utf-8").startswith(begins)


async def test_a_thousand_checks_ask_once_each(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.set_target(ANA, "project", "apollo", "outside")
    text = "[[check]]\nask = 'tea'\nproject = 'apollo'\nnot = 'coffee'\n" * 1_000
    report = await _report(service, text)
    assert len(report.checks) == 1_000
    assert report.exit_code == 0
    assert fake.calls.count("query") == 1_000


async def test_a_check_is_recorded_from_a_question(service: MemoryService) -> None:
    name = await write(service, "We deploy on Monday\n\nand more")
    answer = await service.query(ANA, QueryRequest(scope=APOLLO, query="when deploy", top_k=7))
    file = service.paths.checks_file
    assert await record_check(service, ANA, answer.operation_id) == f"Recorded in {file}."
    assert (
        await record_check(service, ANA, answer.operation_id) == f"{file} has this check already."
    )
    assert file.read_text() == (
        '[[check]]\nask = "when deploy"\nholds = ["We deploy on Monday"]\nwithin = 7\n'
        'project = "apollo"\n'
    )
    assert file.stat().st_mode & 0o777 == 0o600
    await service.feedback.say(ANA, name, Verdict.NOT_HELPED, operation_id=answer.operation_id)
    said = (await service.log.page(ANA, Filter(), limit=1)).operations[0]
    await record_check(service, ANA, said.operation_id)
    [first, second] = read_checks(file)
    assert (first.holds, second.not_) == (("We deploy on Monday",), ("We deploy on Monday",))
    outcomes = [one.outcome for one in (await check_memory(service, ANA)).checks]
    assert outcomes == ["pass", "fail"]
    await service.feedback.say(ANA, name, Verdict.WITHDRAWN, operation_id=answer.operation_id)
    said = (await service.log.page(ANA, Filter(), limit=1)).operations[0]
    with pytest.raises(Invalid, match="withdrawn"):
        await record_check(service, ANA, said.operation_id)


async def test_a_private_record_and_a_secret_are_named_by_id(
    service: MemoryService, fake: type[FakeAdapter]
) -> None:
    await service.bindings.set_target(ANA, "project", "apollo", "outside")
    private = await write(service, "Ana earns 95,000", HERS)
    answer = await service.query(ANA, QueryRequest(scope=HERS, query="what does ana earn"))
    await record_check(service, ANA, answer.operation_id)
    secret = "ghp_" + "a1B2" * 9
    record = await write(service, "token placeholder")
    held = fake.records["local/outside"]
    held[record] = held[record].model_copy(update={"text": f"token {secret}"})
    asked = QueryRequest(scope=APOLLO, query=f"token {secret}")
    answer = await service.query(ANA, asked)
    await record_check(service, ANA, answer.operation_id)
    written = service.paths.checks_file.read_text()
    assert "95,000" not in written
    assert secret not in written
    assert [one.records for one in read_checks(service.paths.checks_file)] == [
        (private,), (record,),
    ]  # fmt: skip
    assert (await check_memory(service, ANA)).exit_code == 0


async def test_a_delivered_context_is_recorded(service: MemoryService) -> None:
    await write(service, 'Answers in\tEnglish \x7f "quoted" \\ 数', kind="fact")
    request = ContextRequest(scope=APOLLO, prompt="in which language", delivered=True)
    answer = await service.context(ANA, request)
    await record_check(service, ANA, answer.operation_id)
    [check] = read_checks(service.paths.checks_file)
    assert (check.context, check.project) == ("in which language", "apollo")
    assert (await check_memory(service, ANA)).exit_code == 0


async def test_what_makes_no_check_is_refused(service: MemoryService, settings: Settings) -> None:
    name = await write(service, "We deploy on Monday")
    written = (await service.log.page(ANA, Filter(), limit=1)).operations[0]

    async def refused(operation_id: str, said: str, **more: Any) -> None:
        with pytest.raises((Invalid, NotFound, Denied), match=said):
            await record_check(service, ANA, operation_id, **more)
        assert not service.paths.checks_file.exists()

    async def asked(**more: Any) -> str:
        answer = await service.query(ANA, QueryRequest.model_validate({"scope": APOLLO, **more}))
        return answer.operation_id

    await refused("nothing", "nothing")
    await refused(written.operation_id, "question or context that succeeded")
    await refused(await asked(query="zeppelin"), "It found nothing")
    await refused(await asked(query="deploy"), "did not return other", record_id="other")
    await refused(await asked(query="deploy", topic="ops"), "A filter or topic")
    await refused(await asked(query="deploy", filter={"kind": "note"}), "A filter or topic")
    await refused(await asked(query="deploy " * 700), "cut")
    question = await asked(query="deploy")
    service.paths.checks_file.write_text("x = 3")
    with pytest.raises(Invalid, match="no table x"):
        await record_check(service, ANA, question, record_id=name)
    assert service.paths.checks_file.read_text() == "x = 3"
    inline = "check = [{ask = 'x', holds = 'y'}]"
    service.paths.checks_file.write_text(inline)
    with pytest.raises(Invalid, match="write each check as a table"):
        await record_check(service, ANA, question)
    assert service.paths.checks_file.read_text() == inline
    service.paths.checks_file.unlink()
    handle = (await service.get(ANA, name, APOLLO)).record.handle
    said = await service.feedback.say(ANA, name, Verdict.HELPED, operation_id=question)
    await service.forget(ANA, ForgetRequest(scope=APOLLO, handles=(handle,)))
    await service.purging.apply(ANA, PurgeRequest(record_id=name, binding_key="default"))
    for erased in (question, said.operation_id):
        await refused(erased, "erased in part")
    await service.close()
    closed = await open_service(
        service.paths, settings.model_copy(update={"read_only": True}), make=False
    )
    with pytest.raises(Denied, match="read-only"):
        await record_check(closed, ANA, question)
    await closed.close()


async def test_a_plan_is_tried_before_it_is_applied(service: MemoryService) -> None:
    keep = await write(service, "We deploy on Monday")
    await write(service, "We deploy with two reviews")
    file = service.paths.checks_file
    file.write_text("[[check]]\nask = 'deploy'\nproject = 'apollo'\nholds = 'Monday'")
    before = (await service.log.page(ANA, Filter(internal=True))).total
    handle = RecordHandle(provider_key="vault", provider_record_id=keep)
    told: list[str] = []
    report = await check_memory(service, ANA, without={"default": [handle]}, so_far=told.append)
    assert told == ["1 of 1 checks asked"]
    assert [one.outcome for one in report.checks] == ["fail"]
    assert (await check_memory(service, ANA)).exit_code == 0
    assert (await service.log.page(ANA, Filter(internal=True))).total == before + 1
    outside = "[[check]]\nask = 'x'\nbinding = 'outside'\nholds = 'x'"
    file.write_text(outside)
    [tried] = (await check_memory(service, ANA, without={"outside": [handle]})).checks
    assert (tried.outcome, tried.error_kind) == ("error", "Unsupported")
