"""What a binding can do with the tools that a server has."""

from collections.abc import Mapping
from itertools import islice

from memtui.contract import Capabilities, Invalid
from memtui.mcp_mapping import Mapping as ToolMapping
from memtui.mcp_mapping import bundled_mappings, load_mapping

_READING = {"search": "search", "listing": "list", "get": "get"}
_CHANGING = {"add": "add", "update": "update", "delete": "delete"}
"""The words for the sections of a mapping, by the names of its fields."""
_MOST_NAMED = 30


def mapping_within(mapping: ToolMapping, tools: Mapping[str, bool | None]) -> ToolMapping:
    """Return a mapping without the sections of which the server has no tool.

    `tools` says of each whether it only reads; None: the server does not say it.

    Raises:
        Invalid: it reads with a tool that changes something.
    """
    calls = {name: getattr(mapping, name) for name in _READING | _CHANGING}
    gone = [name for name, one in calls.items() if one is not None and one.tool not in tools]
    for name in _READING:
        if (call := calls[name]) is not None and tools.get(call.tool) is False:
            raise Invalid(
                f"The mapping {mapping.name} reads with the tool {call.tool}, of which the server "
                "says that it changes something; name another tool."
            )
    return mapping.model_copy(update=dict.fromkeys(gone))


def abilities_of(mapping: ToolMapping) -> Capabilities:
    """Return the abilities that a mapping makes of a server's tools."""
    add, by = mapping.add, mapping.search.by if mapping.search else "phrase"
    can_replace = mapping.replaces and add is not None and mapping.delete is not None
    ids = mapping.record.id
    tells_ids = add is not None and (add.rows is not None or ids[:1] == (mapping.record.title,))
    return Capabilities(
        browse=mapping.listing is not None,
        correction=mapping.reads_again and (mapping.update is not None or can_replace),
        async_ingestion=mapping.late or not tells_ids,
        provider_managed_extraction=mapping.extracts,
        writable=add is not None,
        chosen_owners=True,
        full_text=by in {"words", "phrase"},
        semantic=by == "meaning",
        agents_search=mapping.search is not None and by == "phrase",
    )


def uses_of(mapping: ToolMapping) -> list[str]:
    """Return what a mapping has tools for, in words."""
    words = _READING | _CHANGING
    return [words[name] for name in words if getattr(mapping, name) is not None]


def proposal(server: str, tools: Mapping[str, object]) -> str:
    """Return the sentence that names a server's tools and the mapping of memtui that fits them."""
    known = map(load_mapping, bundled_mappings())
    fits = [one.name for one in known if server in one.servers or one.tools <= tools.keys()]
    advice = "memtui has no mapping for it; write one, and set mapping to its path"
    if fits:
        advice = f"set mapping to {' or '.join(fits)}"
    named = ", ".join(islice(tools, _MOST_NAMED))
    return f"The server calls itself {server} and has the tools {named}: {advice}."
