"""The models that a context can be counted and priced for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from memtui.context.cost import TokenCounter
from memtui.screens.dialogs.choose import Choice

KNOWN = (
    "claude-sonnet-4-5",
    "claude-opus-4-5",
    "claude-haiku-4-5",
    "gpt-5",
    "gpt-5-mini",
    "gpt-4.1",
    "gpt-4o",
    "gpt-4o-mini",
    "o3",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "mistral-large-latest",
    "deepseek-chat",
    "grok-4",
)
"""Offered by name; any other can be typed."""


async def model_choices(used: Iterable[str]) -> list[Choice[str]]:
    """Return the models to choose from, those in use first, each with how it is counted."""
    return await asyncio.to_thread(_choices, [*used, *KNOWN])


def _choices(models: Iterable[str]) -> list[Choice[str]]:
    return [Choice(model, model, _how(model)) for model in dict.fromkeys(models)]


def _how(model: str) -> str:
    return "exact" if TokenCounter(model).exact else "estimated"


def offered_model(text: str) -> list[Choice[str]]:
    """Return the choice of a model that is not in the list."""
    return [Choice(text, f"{text}  — as written", "other")]
