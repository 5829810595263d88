"""memtui's two themes, and one that uses the terminal's colours."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "memtui"
LIGHT = "memtui-light"
ANSI = "ansi"


_OWN = tomllib.loads(Path(__file__).with_name("themes.toml").read_text("utf-8"))


def own_themes(colours: str | None = "truecolor") -> list[Theme]:
    """Return memtui's themes for a terminal: "truecolor", "256" or "standard" (16 colours)."""
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
    return [*(_own_theme(name, colours) for name in (DEFAULT, LIGHT)), ansi]


def _own_theme(name: str, colours: str | None) -> Theme:
    """Return one theme of `themes.toml`."""
    fields = _OWN[name] | _OWN[name].get(colours, {})
    background, foreground, selection = fields["chosen"]
    chosen = {
        "block-cursor-background": background,
        "block-cursor-blurred-background": background,
        "block-cursor-foreground": foreground,
        "input-selection-background": selection,
    }
    own = {key: value for key, value in fields.items() if key not in {"256", "standard", "chosen"}}
    return Theme(name=name, variables=chosen, **own)


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
