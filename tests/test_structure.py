"""The shape of the package: no circle of imports, one class a name, no more lines than today.

The ratchets only go down: whoever makes a number smaller writes the smaller number here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 124_650
"""Of `memtui/`, without docstrings and comments; blank lines count."""


@cache
def texts() -> dict[str, str]:
    """Return the text of every module, by its dotted name."""
    files = sorted((ROOT / "memtui").rglob("*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return {
        name.removesuffix(".__init__"): file.read_text("utf-8")
        for name, file in zip(names, files, strict=True)
    }


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every module."""
    return {module: ast.parse(text) for module, text in texts().items()}


def imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports, for types and inside functions too."""
    is_package = (ROOT / module.replace(".", "/")).is_dir()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: None if is_package else -1]
            above = above[: len(above) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in trees() else base


def test_no_module_imports_itself_through_others() -> None:
    graph = {
        module: {one for one in imports(module, tree) if one in trees() and one != module}
        for module, tree in trees().items()
    }
    assert len(graph) > 300
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_each_public_class_has_a_name_of_its_own() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    assert len(found) > 700
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of a module's lines without its docstrings and comments."""
    lines = text.splitlines()
    left_out = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines) - len(left_out)


def test_the_package_does_not_grow() -> None:
    lines = sum(code_lines(text, trees()[module]) for module, text in texts().items())
    assert lines <= MOST_LINES, lines
