"""Two themes of our own and one that uses the terminal's own colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "memtui"
LIGHT = "memtui-light"
ANSI = "ansi"


def own_themes(colours: str | None = "truecolor") -> list[Theme]:
    """Return the themes that are registered beside Textual's, for the `colours` of a terminal.

    Of 16 ("standard") they have some of these: the nearest to their own would be greys alone on
    black, and greys and a yellow on white. Of 256 their grounds are greys and a blue that are among
    them: the nearest to dark grounds with a little blue is a strong one, and a green.
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
        # What is selected is shown reversed: black would be drawn on black.
        variables={**plain.variables, "input-selection-foreground": "ansi_default"},
    )
    return [dark, light, ansi]


def _chosen(background: str, foreground: str, selection: str) -> dict[str, str]:
    """Return the colours of the row that is chosen, and of text that is selected in a line."""
    return {
        "block-cursor-background": background,
        "block-cursor-blurred-background": background,
        "block-cursor-foreground": foreground,
        "input-selection-background": selection,
    }


def own_variables(
    variables: Mapping[str, str], *, is_dark: bool, few_colours: bool
) -> dict[str, str]:
    """Return the colours of lines and scrollbars: ones that stand out on light and on dark."""
    shade = "lighten" if is_dark else "darken"
    rule, thumb = variables[f"panel-{shade}-2"], variables[f"panel-{shade}-3"]
    if few_colours:
        rule = thumb = "#555555"  # what a palette of 16 has as its grey
    elif rule == "transparent":
        rule = thumb = "ansi_bright_black"  # of a theme of the terminal's own colours
    return {"rule": rule, "thumb": thumb}


def theme_names() -> tuple[str, ...]:
    """Return the names of all themes, our own first."""
    return (*(theme.name for theme in own_themes()), *sorted(BUILTIN_THEMES))


def check_theme(name: str) -> None:
    """Raise `Invalid` where there is no such theme."""
    if name in theme_names():
        return
    # Only here: the first paint does without the contract.
    from memtui.contract import Invalid
    from memtui.wording import unknown

    raise Invalid(unknown("theme", repr(name), theme_names()))
