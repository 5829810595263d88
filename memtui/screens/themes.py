"""memtui's two themes, and one that uses the terminal's colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "memtui"
LIGHT = "memtui-light"
ANSI = "ansi"


def own_themes(colours: str | None = "truecolor") -> list[Theme]:
    """Return memtui's themes for a terminal: "truecolor", "256" or "standard" (16 colours).

    With fewer colours they use only colours of that palette. The nearest ones would be wrong: of
    16, only greys on black, greys and a yellow on white; of 256, a strong blue and a green for the
    dark, slightly blue grounds.
    """
    dark = Theme(
        name=DEFAULT,
        primary="#7aa2f7",
        secondary="#7dcfff",
        accent="#e0af68",
        warning="#e0af68",
        error="#f7768e",
        success="#9ece6a",
        foreground="#c8d0e8",
        background="#15171f",
        surface="#1b1e29",
        panel="#262a38",
        dark=True,
        variables=_chosen("#28324c", "#ffffff", "#465678"),
    )
    light = Theme(
        name=LIGHT,
        primary="#2e5cb8",
        secondary="#0f7f9c",
        accent="#8f5a00",
        warning="#8f5a00",
        error="#b3243c",
        success="#3c7a1e",
        foreground="#23283a",
        background="#fafafc",
        surface="#f0f1f6",
        panel="#e4e7f0",
        dark=False,
        variables=_chosen("#dbe5fa", "#10131c", "#cfdcf7"),
    )
    if colours == "256":
        dark = replace(
            dark,
            foreground="#d0d0d0",
            background="#121212",
            surface="#1c1c1c",
            panel="#303030",
            variables=_chosen("#005f87", "#ffffff", "#5f5f87"),
        )
        light = replace(
            light,
            foreground="#262626",
            background="#ffffff",
            surface="#f3f3f3",
            panel="#ebebeb",
            variables=_chosen("#afd7ff", "#000000", "#afd7ff"),
        )
    elif colours == "standard":
        dark = replace(
            dark,
            primary="#5555ff",
            accent="#ffff55",
            warning="#ffff55",
            error="#ff5555",
            success="#55ff55",
            foreground="#ffffff",
            background="#000000",
            surface="#000000",
            panel="#000000",
            variables=_chosen("#0000aa", "#ffffff", "#0000aa"),
        )
        light = replace(
            light,
            primary="#0000aa",
            accent="#aa00aa",
            warning="#aa00aa",
            error="#aa0000",
            success="#0000aa",
            foreground="#000000",
            background="#ffffff",
            surface="#ffffff",
            panel="#ffffff",
            variables=_chosen("#000000", "#ffffff", "#000000"),
        )
    plain = BUILTIN_THEMES["ansi-dark"]
    ansi = replace(
        plain,
        name=ANSI,
        primary="ansi_bright_blue",
        accent="ansi_bright_magenta",
        error="ansi_bright_red",
        # A selection is drawn reversed: black would be drawn on black.
        variables={**plain.variables, "input-selection-foreground": "ansi_default"},
    )
    return [dark, light, ansi]


def _chosen(background: str, foreground: str, selection: str) -> dict[str, str]:
    """Return the colours of the chosen row and of selected text."""
    return {
        "block-cursor-background": background,
        "block-cursor-blurred-background": background,
        "block-cursor-foreground": foreground,
        "input-selection-background": selection,
    }


def own_variables(
    variables: Mapping[str, str], *, is_dark: bool, few_colours: bool
) -> dict[str, str]:
    """Return the colours of lines and scrollbars, visible on light and dark grounds."""
    shade = "lighten" if is_dark else "darken"
    rule, thumb = variables[f"panel-{shade}-2"], variables[f"panel-{shade}-3"]
    if few_colours:
        rule = thumb = "#555555"  # the grey of the 16 colours
    elif rule == "transparent":
        rule = thumb = "ansi_bright_black"  # a theme with the terminal's own colours
    return {"rule": rule, "thumb": thumb}


def theme_names() -> tuple[str, ...]:
    """Return the names of all themes, memtui's first."""
    return (*(theme.name for theme in own_themes()), *sorted(BUILTIN_THEMES))


def check_theme(name: str) -> None:
    """Raise `Invalid` if there is no such theme."""
    if name in theme_names():
        return
    # Imported here, as the first paint must not import the contract.
    from memtui.contract import Invalid
    from memtui.wording import unknown

    raise Invalid(unknown("theme", repr(name), theme_names()))
