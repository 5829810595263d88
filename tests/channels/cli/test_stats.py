"""`stats`: figures that plain Python makes of an export too."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from memtui.store.database import Database
from tests.channels.cli.conftest import Run, assert_harmless
from tests.channels.cli.test_ops_export import lines


def counted(operations: list[Any]) -> dict[str, Any]:
    """The plain figures of exported operations."""
    kinds = Counter(one["operation_type"] for one in operations)
    usage = [part for one in operations for part in one["usage"]]
    answered = [
        one for one in operations if (one["operation_type"], one["status"]) == ("query", "ok")
    ]
    empty = sum(one["result_count"] == 0 for one in answered)
    return {
        "operation_count": len(operations),
        "query_count": kinds["query"],
        "write_count": kinds["write"],
        "correction_count": sum(
            one["operation_type"] == "correct"
            and one["status"] == "ok"
            and not one["principal"].startswith("agent:")
            for one in operations
        ),
        "success_count": sum(one["status"] == "ok" for one in operations),
        "failure_count": sum(one["status"] not in {"ok", "cancelled"} for one in operations),
        "input_tokens": sum(part["input_tokens"] for part in usage),
        "output_tokens": sum(part["output_tokens"] for part in usage),
        "embedding_tokens": sum(part["embedding_tokens"] for part in usage),
        "cost_usd": sum((Decimal(part["cost_usd"] or 0) for part in usage), Decimal(0)),
        "unpriced_count": sum(part["cost_usd"] is None for part in usage),
        "empty_query_rate": empty / len(answered) if answered else None,
    }


def told(figures: dict[str, Any]) -> dict[str, Any]:
    """The same figures of an answer."""
    return {name: figures[name] for name in counted([])} | {
        "cost_usd": Decimal(figures["cost_usd"])
    }


def test_the_document_equals_a_count_of_the_export(here: Run, logged: Database) -> None:
    here("ops", "archive", "seal", "--older-than", "2026-03-09T12:30:00+00:00")
    exported = lines(here("ops", "export", "--to", "-").out)
    found = here("stats", "--by", "agent,status", "--by", "agent", "--json").document
    assert told(found) == counted(exported)
    assert found["by"] == ["agent", "status"]
    assert found["hit_sign"] == "used"
    assert found["latency_ms"].keys() == {"p50", "p95", "p99"}
    assert 0 <= found["hit_rate"] <= 1
    everything = here("stats", "--internal", "--json").document
    assert everything["operation_count"] == len(exported) + found["left_out_count"]
    of_binding, of_group = defaultdict(list), defaultdict(list)
    for one in exported:
        of_binding[one["binding_key"]].append(one)
        of_group[one["scope"]["agent_id"], one["status"]].append(one)
    assert {row["key"]: told(row) for row in found["bindings"]} == {
        key: counted(operations) for key, operations in of_binding.items()
    }
    groups = {(row["keys"]["agent"], row["keys"]["status"]): row for row in found["groups"]}
    assert {key: told(row) for key, row in groups.items()} == {
        key: counted(operations) for key, operations in of_group.items()
    }


def test_time_is_cut_in_the_zone_that_is_set(here: Run, logged: Database, monkeypatch: Any) -> None:
    monkeypatch.setenv("MEMTUI_TIMEZONE", "Asia/Kathmandu")
    ask = ["stats", "--until", "2026-03-10", "--bucket", "hour"]
    found = here(*ask, "--json").document
    assert found["zone"] == "Asia/Kathmandu"
    assert [(row["begins"], row["operation_count"]) for row in found["groups"]] == [
        ("2026-03-09T17:00:00+05:45", 14),
        ("2026-03-09T18:00:00+05:45", 46),
    ]
    assert "2026-03-09 17:00 +0545" in here(*ask).out


def test_the_filter_and_the_hit_sign_count(here: Run, logged: Database) -> None:
    typed = here("stats", "type:write", "--json").document
    assert typed["operation_count"] == typed["write_count"] > 0
    assert here("stats", "--type", "write", "--json").document == typed
    assert typed["hit_sign"] == "used"
    assert "at or above the score threshold" in here("stats", "--hit-sign", "score").out


def test_what_people_see(here: Run, logged: Database) -> None:
    out = here("stats", "--by", "project,model", "--bucket", "week").out
    found = here("stats", "--json").document
    assert f"{found['unpriced_count']} of {found['usage_count']} calls" in out
    assert "they have no price" in out
    assert "was opened within 24 h" in out
    assert "2026-03-09" in out
    assert "(none)" in out
    assert_harmless(out)


def test_an_empty_log_and_bad_input(here: Run, empty_log: Database) -> None:
    empty = here("stats", "--json").document
    assert (empty["operation_count"], empty["cost_usd"], empty["hit_rate"]) == (0, "0", None)
    assert (empty["bindings"], empty["groups"]) == ([], [])
    assert "nothing was consumed" in here("stats").out
    unknown = here("stats", "--by", "colour")
    assert (unknown.code, "There is no dimension colour" in unknown.err) == (2, True)
    assert here("stats", "--bucket", "year").code == 2
    assert here("stats", "--hit-sign", "luck").code == 2
    assert here("stats", "--since", "soon").code == 2
    assert here("stats", "colour:red").code == 2


def test_a_binding_can_have_a_score_threshold_of_its_own(
    here: Run, logged: Database, home: Path
) -> None:
    """Settings say what a hit is, for all bindings and for one."""

    def hits() -> dict[str | None, int]:
        found = here("stats", "--hit-sign", "score", "--json").document
        return {one["key"]: one["hit_count"] for one in found["bindings"]}

    (home / "config.toml").write_text("score_threshold = 1.0\n")
    none = hits()
    chosen = next(key for key in none if key is not None)
    (home / "config.toml").write_text(
        f"score_threshold = 1.0\n[score_thresholds]\n{chosen} = 0.0\n"
    )
    some = hits()
    assert some[chosen] > none[chosen]
    assert {key: count for key, count in some.items() if key != chosen} == {
        key: count for key, count in none.items() if key != chosen
    }
    (home / "config.toml").write_text(f"[score_thresholds]\n{chosen} = 2\n")
    refused = here("stats", "--json")
    assert refused.code == 2
    assert "score_thresholds" in refused.err
