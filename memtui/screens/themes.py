"""Two themes of our own and one that uses the terminal's own colours."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "memtui"
LIGHT = "memtui-light"
ANSI = "ansi"


def own_themes() -> list[Theme]:
    """Return the themes that are registered beside Textual's."""
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
        variables={"block-cursor-background": "#33405f", "block-cursor-foreground": "#ffffff"},
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
        panel="#e2e5ee",
        dark=False,
        variables={"block-cursor-background": "#cfdcf7", "block-cursor-foreground": "#10131c"},
    )
    ansi = replace(BUILTIN_THEMES["ansi-dark"], name=ANSI, accent="ansi_magenta")
    return [dark, light, ansi]


def theme_names() -> tuple[str, ...]:
    """Return the names of all themes, our own first."""
    return (*(theme.name for theme in own_themes()), *sorted(BUILTIN_THEMES))


def check_theme(name: str) -> None:
    """Raise `Invalid` where there is no such theme."""
    if name in theme_names():
        return
    import difflib

    from memtui.contract import Invalid  # only here: the first paint does without the contract

    near = difflib.get_close_matches(name, theme_names(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"the themes are {', '.join(theme_names())}."
    raise Invalid(f"There is no theme {name!r}; {hint}")
