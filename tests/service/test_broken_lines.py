"""A write into a file of which some lines cannot be read says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memtui.config import Paths, Settings
from memtui.contract import Invalid, Scope, SourceKind, SourceRef, WriteRequest
from memtui.service import Caller, open_service

LINE = '{"type":"entity","name":"Carl","entityType":"person","observations":["likes tea"]}'
SCOPE = Scope(company_id="local")
SOURCE = SourceRef(kind=SourceKind.MANUAL_NOTE, company_id="local")


async def test_a_write_beside_broken_lines_names_them(
    paths: Paths, settings: Settings, tmp_path: Path
) -> None:
    caller = Caller(company_id="local", principal="user:ana", channel="test")
    graph = tmp_path / "graph.jsonl"
    graph.write_text(f"{LINE}{LINE}\n{LINE}\n")
    note = WriteRequest(
        scope=SCOPE, source=SOURCE, content="Tea.", title="Carl", binding_key="graph"
    )
    service = await open_service(paths, settings)
    try:
        await service.bindings.add(
            caller, "graph", "mcp-memory", {"path": str(graph), "settle_ms": 0}
        )
        written = await service.write(caller, note)
        [problem] = written.problems
        assert problem.location is not None
        assert (problem.location.path, problem.location.line) == (str(graph), 1)
        assert "not valid JSON" in problem.message
        elsewhere = note.model_copy(update={"binding_key": "default"})
        assert (await service.write(caller, elsewhere)).problems == ()

        document = json.dumps({"entities": [json.loads(LINE)], "relations": []})
        graph.write_text(document)
        with pytest.raises(Invalid, match="is one JSON document"):
            await service.write(caller, note)
        assert graph.read_text() == document
    finally:
        await service.close()
