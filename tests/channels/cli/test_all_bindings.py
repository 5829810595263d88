"""`--all-bindings`: one question and one list over all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.channels.cli.conftest import Run


def test_all_bindings_answer_and_what_fails_is_named(here: Run, tmp_path: Path) -> None:
    vault = tmp_path / "shelf"
    vault.mkdir()
    assert here("bindings", "add", "table", "facts").code == 0
    assert here("bindings", "add", "shelf", "vault", "--set", f"path={vault}").code == 0
    assert here("note", "The release leaves on Thursdays", "--project", "web").code == 0
    for text, binding in (("release_day: Thursday", "table"), ("release_day: Monday", "shelf")):
        scope = ("--project", "web") if binding == "table" else ()
        assert here("note", text, "--kind", "fact", "--binding", binding, *scope).code == 0

    done = here("query", "release day", "--project", "web", "--all-bindings", "--json")
    assert [one["binding_key"] for one in done.document["snippets"]] == ["table", "default"]
    assert [one["hidden_by_binding"] for one in done.document["hidden"]] == ["table"]
    assert {one["binding_key"]: one["status"] for one in done.document["bindings"]} == {
        "default": "ok", "table": "ok", "shelf": "ok",
    }  # fmt: skip
    shown = here("query", "release day", "--project", "web", "--all-bindings")
    assert "hidden: release_day: Monday" in shown.out
    assert "3 bindings" in shown.err
    listed = here("ops", "list", "type:query", "--json").document
    assert (listed["total"], listed["folded"]) == (2, True)
    for row in listed["operations"]:
        sums = listed["parts"][row["operation_id"]]
        assert (sums["operation_ids"][0], sums["bindings"]) == (row["operation_id"], 3)
        one = here("ops", "show", row["operation_id"], "--json").document
        assert [part["operation_id"] for part in one["parts"]] == sums["operation_ids"]
        assert sums["result_count"] == sum(part["result_count"] for part in one["parts"])
        assert sums["latency_ms"] == max(part["latency_ms"] for part in one["parts"])
        assert {part["part_of"] for part in one["parts"][1:]} == {row["operation_id"]}
        assert "3 bindings:" in here("ops", "show", row["operation_id"]).out
    assert here("ops", "list", "type:query").out.count("3 bindings") == 2
    for flat in ("--parts", "status:ok", "release", "latency>=0"):
        flatly = here("ops", "list", "type:query", flat, "--json").document
        assert (flatly["total"], flatly["folded"], flatly["parts"]) == (6, False, {})
    assert here("ops", "list", "type:query", "binding:table", "--json").document["total"] == 2
    assert here("stats", "type:query", "--json").document["query_count"] == 6

    stages = here("query", "release", "--project", "web", "--all-bindings", "--explain")
    assert "rank fusion: " in stages.out

    first = here("browse", "--all-bindings", "--limit", "2", "--sort", "title", "--json").document
    more = ("--cursor", first["next_cursor"], "--sort", "title", "--json")
    rest = here("browse", "--all-bindings", *more).document
    records = first["records"] + rest["records"]
    assert sorted(one["binding_key"] for one in records) == ["default", "shelf", "table"]
    assert (rest["next_cursor"], rest["total"]) == (None, 3)

    assert here("note", "Ship it #release/cut", "--tag", "release").code == 0
    assert "release            1  default 1" in here("browse", "--tags").out
    counted = here("browse", "--tags", "--json").document
    assert [one["tag"] for one in counted["tags"]] == ["release", "release/cut"]
    having = ("browse", "tag:release", "--all-bindings")
    assert here(*having, "--json").document["records"][0]["binding_key"] == "default"
    assert here(*having, "--project", "web").out == ""
    assert "near is tag:release" in here("browse", "tag:relaese", "--all-bindings").err
    assert here("browse", "--tags", "tag:release").code == 2

    shutil.rmtree(vault)
    vault.write_text("no folder")
    done = here("query", "release", "--project", "web", "--all-bindings")
    assert done.code == 0
    assert "from 2 of 3 bindings" in done.err
    assert "3 bindings, 1 failed" in here("ops", "list", "type:query", "--limit", "1").out
    failed = here("ops", "list", "status:failed", "--json").document["operations"]
    assert "shelf" in {one["binding_key"] for one in failed}
    assert "shelf" in done.err.splitlines()[-1]
    assert "shelf" in here("browse", "--tags").err.splitlines()[-1]
    done = here("query", "release", "--all-bindings", "--binding", "table")
    assert (done.code, done.out) == (2, "")
    assert "leave out its name" in done.err
