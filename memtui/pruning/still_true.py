"""Which things that memories mention are gone from their workspace, by its git history.

Only what the checked-out history once had, and neither it nor the work tree has now, is gone. What
never was there is unknown. So is what a memory mentions that was written after it went.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from memtui.contract import Record, Unavailable
from memtui.provider_kit.files.git_past import GitPast, Gone, leaves, modified_at, whole
from memtui.provider_kit.files.guarded_git import AnsweredTooMuch
from memtui.pruning.mentions import Mention, mentions

_SECONDS = 30.0
"""After this long no older commit is searched for words."""
_SAMPLES = 12
_MOST_SAMPLES = 32
"""How many commits are searched for words: spread evenly, and those at which memories were made."""
_SHOWN = 3
"""Most things that a sentence names."""
K = TypeVar("K", bound=Hashable)

_TELLS_HISTORY = re.compile(
    r"(?:^|/)(?:chang|history|news|releas|migrat|deprecat|upgrad|whatsnew|breaking)[^/]*$"
    r"|(?:^|/)(?:CLAUDE|CLAUDE\.local|AGENTS|GEMINI|MEMORY)\.md$"
    r"|(?:^|/)\.(?:claude|cursor|cursorrules|windsurf|codex|gemini)(?:/|$)|\.egg-info/",
    re.IGNORECASE,
)
"""Files that may name what is gone: they tell the past, or are memories themselves."""
_PROSE = re.compile(r"\.(?:md|mdx|rst|txt|adoc|org|html?|svg|jsonl)$", re.IGNORECASE)
_MANIFEST = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.(?:py|cfg)|[\w-]*requirements[\w-]*\.(?:txt|in)"
    r"|requirements/[^/]+|Pipfile|package\.json|Cargo\.toml|Gemfile|composer\.json"
    r"|environment\.ya?ml|constraints\.txt)$"
)
_RUNS = re.compile(r"\.(?:ya?ml|json|toml|ini|cfg)$|(?:^|/)\w*[a-z]file$")
"""Files with command lines, whose flags are those of other programs."""
_DEFINES = (
    r"\b(?:def|class|function\*?|fn|func(?: \([^)]*\))?|fun|type|struct|enum|interface|trait|define"
    r"|module)\s+{0}|\b(?:const|let|var|val|import|from|use|require|include)\b[^#\n]{{0,60}}?{0}"
    r"|^\s*(?:(?:async|export|get|public|readonly|set|static) )*{0}\s*[:=(]"
    r"|\b(?:prototype|self|this)\.{0}\s*[:=]"
)
_OWN = r"(?!\s*(?:from|import)\b).*(?:(?<!\.)|\b(?:cls|prototype|self|this)\.){0}"
"""A name that is neither imported nor an attribute of what may be another program's."""
_TARGETS = {
    "make": (r"(?:^|/)(?:GNUm|m|M)akefile$", r"^{0}\s*:"),
    "just": (r"(?:^|/)\.?[jJ]ustfile$", r"^@?{0}\b[^=]*:"),
    "tox": (r"(?:^|/)tox\.ini$", r"^\[testenv:{0}\]|^(?:envlist *=)?[\w{{}}, -]*\b{0} *(?:,|$)"),
} | dict.fromkeys(("npm", "pnpm", "yarn"), (r"(?:^|/)package\.json$", r'"{0}"\s*:'))
"""Programs that run what a file of the workspace defines, with the file and the defining line."""


def sentence_of(found: Collection[Gone]) -> str:
    """Return a sentence about things that are gone."""
    some = [one.words for one in found][:_SHOWN]
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{'; '.join(some)}{more}."


@dataclass(frozen=True, slots=True)
class _Sought:
    """Words to look for, which lines of which files count as there, and which prove it was."""

    words: tuple[str, ...]
    is_there: Callable[[str, str], bool]
    was_there: Callable[[str, str], bool]


@dataclass
class StillTrue:
    """Judges memories by the history of one workspace. Blocking."""

    past: GitPast
    limits: set[str] = field(default_factory=set)
    """Where the search stopped early, in sentences."""
    _known: dict[Mention, Gone | None] = field(default_factory=dict)
    """What is known of names, flags and commands; None: not gone."""

    def gone(self, texts: Mapping[K, tuple[str, datetime | None]]) -> dict[K, list[Gone]]:
        """Return what is gone of what texts mention; the time of a text is when it was written."""
        mentioned = {key: mentions(text) for key, (text, _) in texts.items()}
        wanted = {one for some in mentioned.values() for one in some}
        if not wanted or not self.past.head:
            return {}
        moments = [moment for key, (_, moment) in texts.items() if moment and mentioned[key]]
        found = self._paths(wanted) | self._refs(wanted) | self._words(wanted, moments)
        times = dict(self.past.commits)
        self.limits |= self.past.limits
        answer = {}
        for key, (_, moment) in texts.items():
            known = dict.fromkeys(found[one] for one in mentioned[key] if one in found)
            if still := [
                one for one in known if not moment or times.get(one.commit, moment) >= moment
            ]:
                answer[key] = still
        return answer

    def _paths(self, wanted: Iterable[Mention]) -> dict[Mention, Gone]:
        sought: dict[str, list[Mention]] = defaultdict(list)
        root = f"{self.past.folder}/"
        for one in wanted:
            path = one.name.removeprefix(root).rstrip("/")
            if one.kind == "path" and path and not path.startswith("/"):
                sought[path].append(one)
        ends = _ends(self.past.files, sought)
        missing = {one for one in sought if not ends[one] and not self._is_on_disk(one)}
        deleted = {one: found for one, found in _ends(self.past.deleted, missing).items() if found}
        answer: dict[Mention, Gone] = {}
        for path, (full, whole_path) in deleted.items():
            if self.past.ignores(full):
                continue
            commit = self.past.deleted[full]
            new = self.past.renamed(commit, whole_path)
            answer |= {one: Gone(path, commit, new) for one in sought[path]}
        return answer

    def _is_on_disk(self, path: str) -> bool:
        """Whether the folder has a path, or a link is on the way to it, which is not followed."""
        places = [path, *(f"{path}{suffix}" for suffix in _MODULES)]
        return any(
            leaves(self.past.folder, one) or (self.past.folder / one).exists() for one in places
        )

    def _refs(self, wanted: Iterable[Mention]) -> dict[Mention, Gone]:
        answer = {}
        for one in wanted:
            removal = self.past.commit_gone(one.name) if one.kind == "commit" else None
            if one.kind == "branch" and one.name not in self.past.branches:
                removal = self.past.past_branches.get(one.name)
            if removal is not None:
                answer[one] = removal
        return answer

    def _words(self, wanted: Iterable[Mention], moments: Iterable[datetime]) -> dict[Mention, Gone]:
        sought = {one: found for one in wanted if (found := self._sought(one)) is not None}
        new = {one: found for one, found in sought.items() if one not in self._known}
        self._known |= dict.fromkeys(new)
        try:
            there = self._lines(self.past.head, new, lambda one: one.is_there)
            self._look_back({one: new[one] for one in new.keys() - there}, moments)
        except Unavailable as error:
            self.limits.add(f"Names were not looked for: {error}")
        gone = {one: known for one in sought if (known := self._known[one]) is not None}
        added = self.past.uncommitted() if gone else ""
        return {
            one: found
            for one, found in gone.items()
            if not any(re.search(whole(word), added) for word in sought[one].words)
        }

    def _look_back(self, sought: Mapping[Mention, _Sought], moments: Iterable[datetime]) -> None:
        """Find the removals of what is not there, in commits from the newest to the oldest."""
        left, began, newer = dict(sought), time.monotonic(), 0
        for place in self._samples(moments):
            if not left:
                return
            commit, at = self.past.commits[place]
            if time.monotonic() - began > _SECONDS:
                self.limits.add(f"Names were looked for back to {at:%Y-%m-%d} only.")
                return
            was = self._lines(commit, left, lambda one: one.was_there)
            words = {word for one in was for word in left[one].words}
            gone = self.past.commits[newer][0]
            found = self.past.removals(words, gone, commit) if words else {}
            for one in was:
                removals = (found[word] for word in left.pop(one).words if word in found)
                self._known[one] = next(removals, Gone(one.name))._replace(name=one.name)
            newer = place

    def _samples(self, moments: Iterable[datetime]) -> list[int]:
        """Return places of commits to search, newest first."""
        last = len(self.past.commits) - 1
        spread = {round(last * part / _SAMPLES) for part in range(1, _SAMPLES + 1)}
        made = sorted({place for one in moments if (place := self.past.place_at(one)) <= last})
        step = max(1, -(-len(made) // (_MOST_SAMPLES - _SAMPLES)))
        return sorted(spread.union(made[::step]))

    def _lines(
        self,
        revision: str,
        sought: Mapping[Mention, _Sought],
        test_of: Callable[[_Sought], Callable[[str, str], bool]],
    ) -> set[Mention]:
        """Return the mentions of which a commit has a line that passes the test."""
        of_word: dict[str, list[Mention]] = defaultdict(list)
        for one, found in sought.items():
            for word in found.words:
                of_word[word].append(one)
        passed: set[Mention] = set()
        joined = [one for one in of_word if not one.isidentifier()]
        for path, line in self._all_lines(revision, [*of_word]):
            named = {one for one in joined if one in line}
            for word in named | (of_word.keys() & _IDENTIFIERS.findall(line)):
                left = (one for one in of_word[word] if one not in passed)
                passed.update([one for one in left if test_of(sought[one])(path, line)])
        return passed

    def _all_lines(self, revision: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the lines of a commit that have one of some words, with the paths of their files.

        A word of more lines than git may answer with is there: it is taken for a line by itself.
        """
        try:
            found = [*self.past.lines(revision, words)]
        except AnsweredTooMuch:
            if len(words) == 1:
                yield "", words[0]
                return
            yield from self._all_lines(revision, words[::2])
            yield from self._all_lines(revision, words[1::2])
        else:
            yield from (one for one in found if not _TELLS_HISTORY.search(one[0]))

    def _sought(self, one: Mention) -> _Sought | None:
        if one.kind == "command":
            return self._sought_command(one.name)
        if one.kind == "flag":
            return _sought_flag(one.name)
        return _sought_name(one) if one.kind == "name" else None

    def _sought_command(self, command: str) -> _Sought | None:
        """Return the target of a command, or the function of a subcommand of the workspace's."""
        words = command.removesuffix(" run").replace(" run ", " ", 1).replace(" -e ", " ", 1)
        program, *rest = words.split()
        if program in _TARGETS and rest:
            file, line = (re.compile(one.format(re.escape(rest[0]))) for one in _TARGETS[program])

            def defines(path: str, text: str) -> bool:
                return bool(file.search(path) and line.search(text))

            return _Sought((rest[0],), defines, defines)
        name, own = "_".join(rest[:2]).replace("-", "_"), (f"{program}/", f"src/{program}/")
        is_own = len(rest) > 1 and any(one.startswith(own) for one in self.past.files)
        return _Sought((name, " ".join(rest[:2])), _anywhere, _in_code) if is_own else None


_IDENTIFIERS = re.compile(r"\w+")
_MODULES = (".py", ".js", ".ts", ".rs", ".go", ".rb")


def _ends(paths: Iterable[str], sought: Collection[str]) -> dict[str, tuple[str, str] | None]:
    """Return for each sought path one of the paths that is it or in it, and its whole path."""
    found: dict[str, tuple[str, str] | None] = dict.fromkeys(sought)
    plain = {f"{one}{suffix}": one for one in sought for suffix in ("", *_MODULES)}
    lasts = {one.rpartition("/")[2] for one in plain}
    for path in paths:
        parts = path.split("/")
        for end, part in enumerate(parts, 1):
            if part not in lasts:
                continue
            for start in range(end):
                name = plain.get("/".join(parts[start:end]))
                if name is not None and found[name] is None:
                    found[name] = path, "/".join(parts[:end])
    return found


def _anywhere(_path: str, _line: str) -> bool:
    return True


def _in_code(path: str, _line: str) -> bool:
    return not _PROSE.search(path)


def _sought_name(one: Mention) -> _Sought:
    name = whole(one.name)
    if not one.is_plain:
        if one.name.isupper():  # settings of the environment may stand in the docs only
            return _Sought((one.name,), _anywhere, _anywhere)
        own = re.compile(_OWN.format(name))
        return _Sought((one.name,), _anywhere, lambda *at: _in_code(*at) and bool(own.match(at[1])))
    required = re.compile(rf"^\s*[\"']?{name}(?:\[[^\]]*\])?\s*(?:[\"':;<>=!~^,(]|$)")
    defines = re.compile(f"{_DEFINES.format(name)}")

    def was_there(path: str, line: str) -> bool:
        if _MANIFEST.search(path):
            return bool(required.search(line))
        return _in_code(path, line) and bool(defines.search(line))

    return _Sought(
        (one.name,), lambda *at: not _MANIFEST.search(at[0]) or was_there(*at), was_there
    )


def _sought_flag(flag: str) -> _Sought:
    stem = flag.removeprefix("--")
    name = stem.replace("-", "_")
    parameter = f"|{whole(name)}" if "_" in name else ""
    key = f"|[\"']{stem}[\"']" if "-" in stem else ""
    given = re.compile(rf"(?<![\w-]){flag}(?![\w-]){parameter}{key}")
    names = tuple(dict.fromkeys((stem, name)))

    def was_there(path: str, line: str) -> bool:
        return _in_code(path, line) and not _RUNS.search(path) and bool(given.search(line))

    return _Sought(names, _anywhere, was_there)


_SOURCE = re.compile(r"([^:#\0\ud800-\udfff]+)(?:#([\w.-]+)|:(\d{1,9})(?:-(\d{1,9}))?)?")
_GIVEN = r"""^([ \t]*)(?:- +|export +)?(["']?){}\2\s*[:=](.*(?:\n(?:\1[ \t-]|\s*[\])}}]).*)*)"""
"""A key at the beginning of a line, and its value on that line and on those below it."""
_AROUND = re.compile(r"(?<!\S)#\s.*|[\"',\s\[\]{}]+")
"""What may change around the words of a value: a comment, quotes, and how it is laid out."""


def changed_source(folder: Path, past: GitPast | None, record: Record) -> str | None:
    """Return how the file that a record names as its source has changed since; None: it has not.

    The source is a path in the folder, with a `:line`, `:first-last` or `#key` if it is only those
    lines or the values of that key. Without git it is the file's time that counts. The file that
    has the record itself is no source.
    """
    ref = record.source.external_ref if record.source is not None else None
    moments = [*filter(None, (record.valid_from, record.created_at, record.updated_at))]
    named = _SOURCE.fullmatch((ref or "").removeprefix(f"{folder}/"))
    if not moments or named is None:
        return None
    moment, path = max(moments), Path(named[1]).as_posix()
    if record.location is not None and os.path.realpath(record.location.path) == f"{folder}/{path}":
        return None
    if past is None:
        at = None if leaves(folder, path) else modified_at(folder / path)
        return f"Its source {path} was changed on {at:%Y-%m-%d}." if at and at > moment else None
    then, now = (past.content(one, path) for one in (past.commit_at(moment), past.head))
    if then is not None and path not in past.files:
        commit = past.deleted.get(path, "")
        return f"Its source {Gone(path, commit, past.renamed(commit, path)).words}."
    if then is None or now is None:  # it was not there, or is too large to read
        return None
    _, key, line, last = named.groups()
    was, has = (_given(one, key) if key else one.splitlines() for one in (then, now))
    part = slice(int(line) - 1, int(last or line)) if line else None
    is_same = {*has}.issuperset(was[part]) if part else was == has
    return None if is_same else f"Its source {ref} has changed since {moment:%Y-%m-%d}."


def _given(text: str, key: str) -> list[str]:
    """Return the values of a key of a file, as `port` or `server.port`, else the lines with it."""
    for name in (key, key.rpartition(".")[2]):
        if found := re.findall(_GIVEN.format(re.escape(name)), text, re.MULTILINE):
            return [_AROUND.sub(" ", one[2]).strip() for one in found]
    return re.findall(rf"^.*{whole(key)}.*$", text, re.MULTILINE)
