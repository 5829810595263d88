"""Memories are judged by small repositories that are made on the spot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtui.contract import Denied, Location, Record, RecordHandle, Scope, SourceKind, SourceRef
from memtui.provider_kit.files import git_past, guarded_git
from memtui.provider_kit.files.git_past import GitPast, Gone
from memtui.pruning import still_true
from memtui.pruning.still_true import StillTrue, changed_source, sentence_of

START = datetime(2026, 1, 1, tzinfo=UTC)
_SAME = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.example",
         "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example"}  # fmt: skip


class Repository:
    """A repository of which each commit is a day after the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.days = folder, 0
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        at = {one: f"{START + timedelta(days=self.days):%Y-%m-%dT%H:%M:%S+0000}"
              for one in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")}  # fmt: skip
        return subprocess.run(
            ["git", *words], cwd=self.folder, env=os.environ | _SAME | at, check=True,
            capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    def commit(self, message: str = "Change", **texts: str | None) -> str:
        """Commit files by path, `__` for a slash and `_dot_` for a dot; None removes one."""
        for name, text in texts.items():
            path = self.folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True) if text is None else path.write_text(text)
        self.days += 1
        self.git("add", "-A")
        self.git("commit", "-qm", message, "--allow-empty")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "work")


@pytest.fixture
def said(made: Repository, tmp_path: Path) -> Callable[..., str]:
    """Return the sentences on a text of one day; none if nothing is gone."""

    def judge(text: str, day: int | None = None) -> str:
        own = tmp_path / f"own{len(list(tmp_path.iterdir()))}"
        own.mkdir()
        moment = None if day is None else START + timedelta(days=day, hours=1)
        found = StillTrue(GitPast(made.folder, own)).gone({"one": (text, moment)})
        return sentence_of(found["one"]) if found else ""

    return judge


Said = Callable[..., str]


def test_a_removed_file_is_gone_with_its_commit(made: Repository, said: Said) -> None:
    made.commit(app__old_dot_py="one = 1\n", app__new_dot_py="two = 2\n")
    commit = made.commit(app__old_dot_py=None)
    for text in (
        "See `app/old.py`.",
        "See app/old.py:3.",
        "See old.py.",
        "Run `python -m app.old`.",
    ):
        assert f"is gone since {commit[:8]}." in said(text), text
    assert said("See `app/new.py` and `app/`.") == said("See app/never.py.") == ""


def test_a_moved_file_and_folder_have_a_new_name(made: Repository, said: Said) -> None:
    lines = "".join(f"line {one}\n" for one in range(30))
    made.commit(doors__cli__main_dot_py=lines, doors__web_dot_py=f"{lines}web\n")
    made.git("mv", "doors", "channels")
    commit = made.commit()
    assert said("Look at doors/cli/main.py.") == (
        f"`doors/cli/main.py` is gone since {commit[:8]}, now `channels/cli/main.py`."
    )
    assert "now `channels`" in said("All is under `doors/`.")


def test_a_renamed_symbol_has_its_new_name_and_commit(made: Repository, said: Said) -> None:
    made.commit(a_dot_py="class HeldRow:\n    x = 1\n\n\nrow = HeldRow()\n")
    commit = made.commit(a_dot_py="class PendingRow:\n    x = 1\n\n\nrow = PendingRow()\n")
    made.commit(a_dot_py="class PendingRow:\n    x = 2\n\n\nrow = PendingRow()\n")
    sentence = f"`HeldRow` is gone since {commit[:8]}, now `PendingRow`."
    assert said("Rows are `HeldRow` objects.") == said("Rows are HeldRow objects.", 1) == sentence


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ('option("--map-type")\n', 'option("--types")\n', "Use `--map-type WORD=TYPE`."),
        ('{"map-type": str}\n', '{"types": str}\n', "Use `--map-type WORD=TYPE`."),
        ('env["FOO_BAR"]\n', 'env["FOO_BAZ"]\n', "Set `FOO_BAR` to 1."),
        (
            "def archive_ls():\n    ...\n",
            "def archive_list():\n    ...\n",
            "`work archive ls`",
        ),
        ("import tenacity\n", "import time\n", "Retry with `tenacity`."),
    ],
)
def test_flags_variables_commands_and_packages_are_gone(
    made: Repository, said: Said, before: str, after: str, text: str
) -> None:
    made.commit(work__a_dot_py=before, work__b_dot_py="x = 1\n")
    commit = made.commit(work__a_dot_py=after)
    assert f"is gone since {commit[:8]}" in said(text)


def test_a_dropped_requirement_is_gone_though_its_settings_name_it(
    made: Repository, said: Said
) -> None:
    made.commit(requirements_dot_txt="flake8>=3\nruff\n", setup_dot_cfg="[flake8]\nx = 1\n")
    made.commit(requirements_dot_txt="ruff\n")
    assert "`flake8` is gone" in said("Lint with `flake8`.")
    assert said("Lint with `ruff`.") == ""


def test_a_target_of_make_is_gone(made: Repository, said: Said) -> None:
    made.commit(Makefile="lint:\n\truff\ntest:\n\tpytest lint\n")
    made.commit(Makefile="check:\n\truff\ntest:\n\tpytest lint\n")
    assert "`make lint` is gone" in said("Run `make lint`.")
    assert said("Run `make test` or `make never`.") == ""


def test_an_environment_of_tox_is_gone(made: Repository, said: Said) -> None:
    made.commit(tox_dot_ini="[tox]\nenvlist = lint,py{311,312}\n[testenv:live]\n[testenv:lint]\n")
    made.commit(tox_dot_ini="[tox]\nenvlist = lint,py{311,312}\n[testenv:docs]\n")
    assert "`tox -e live` is gone" in said("Run `tox -e live`.")
    assert said("Run `tox -e lint`, `tox -e docs` or `tox -e py311`.") == ""


def test_a_name_of_a_module_is_gone_if_the_workspace_defined_it(
    made: Repository, said: Said
) -> None:
    made.commit(a_dot_py="def load_row(): ...\n\n\nx = shutil.copy_tree\n")
    made.commit(a_dot_py="x = 1\n")
    assert "`load_row` is gone" in said("Rows are read by `rows.load_row`.")
    assert said("Copy it with `shutil.copy_tree`.") == ""


def test_a_name_of_another_program_that_was_used_is_unknown(made: Repository, said: Said) -> None:
    made.commit(a_dot_py="class A(RowWarning): ...\n@app.before_row\ndef ask_row(own_row=1):\n"
                         "    self.any_row = x.any_row\n")  # fmt: skip
    made.commit(a_dot_py="x = 1\n")
    assert said("Flask has `before_row`, `-W error::RowWarning` and `asyncio.before_row()`.") == ""
    for one in ("ask_row", "own_row", "any_row"):
        assert f"`{one}` is gone" in said(f"`{one}` does it.")


def test_a_flag_that_the_workspace_gave_to_another_program_is_unknown(
    made: Repository, said: Said
) -> None:
    scripts = '{"scripts": {"x": "node --maps x.js"}}\n'
    made.commit(package_dot_json=scripts, ci_dot_yml="run: node --maps\n", a_dot_js="x = 1\n")
    made.commit(package_dot_json="{}\n", ci_dot_yml="x: 1\n")
    assert said("Start node with `--maps`.") == ""


def test_a_branch_and_a_rewritten_commit_are_gone(made: Repository, said: Said) -> None:
    made.commit(a_dot_py="x = 1\n")
    made.git("checkout", "-qb", "release/2")
    old = made.commit("Fix the parser", a_dot_py="x = 2\n")
    made.git("branch", "-m", "release/3")
    made.git("checkout", "-q", "main")
    assert "now `release/3`" in said("Work on branch release/2.")
    assert (
        said("Work on branch `release/3` or branch other/one.") == said("See commit " + old) == ""
    )
    made.git("cherry-pick", "-n", "release/3")
    made.days += 1
    made.git("commit", "-q", "-C", "release/3")
    made.git("branch", "-qD", "release/3")
    assert f"now `{made.git('rev-parse', 'HEAD')}`" in said(f"See commit {old[:10]}.")
    assert said("See commit 1234567.") == ""


def test_what_is_uncommitted_or_ignored_or_told_by_the_changelog(
    made: Repository, said: Said
) -> None:
    made.commit(a_dot_py="def load_views():\n    ...\n", dist__out_dot_py="x = 1\n", b_dot_py="x\n")
    made.commit(
        a_dot_py="x = 1\n", dist__out_dot_py=None, b_dot_py=None, _dot_gitignore="dist/\n",
        CHANGELOG_dot_md="`load_views` was removed\n", CLAUDE_dot_md="`load_views`\n",
    )  # fmt: skip
    assert "`load_views` is gone" in said("Views are read by `load_views`.")
    assert said("The build writes dist/out.py.") == ""
    (made.folder / "new.py").write_text("def load_views(): ...\n")
    (made.folder / "b.py").write_text("back\n")
    assert said("Views are read by `load_views`, see b.py.") == ""


def test_what_was_written_after_it_went_is_not_judged(made: Repository, said: Said) -> None:
    made.commit(a_dot_py="class HeldRow: ...\n")
    made.commit(a_dot_py="x = 1\n")
    made.commit(a_dot_py="x = 2\n")
    assert said("Rows are HeldRow.", 1)
    assert said("Rows are HeldRow.", 3) == ""


def test_what_was_written_in_the_second_it_went_is_judged(made: Repository, tmp_path: Path) -> None:
    made.commit(a_dot_py="class HeldRow: ...\n")
    made.commit(a_dot_py="x = 1\n")
    (tmp_path / "own").mkdir()
    judge = StillTrue(GitPast(made.folder, tmp_path / "own"))
    assert judge.gone({"one": ("Rows are HeldRow.", START + timedelta(days=2))})


def test_a_sentence_names_three_things_and_counts_the_others() -> None:
    assert sentence_of([Gone(one) for one in "abcde"]) == (
        "`a` is gone; `b` is gone; `c` is gone, and 2 more."
    )


def test_each_way_to_write_a_path_is_judged_and_the_last_removal_told(
    made: Repository, tmp_path: Path
) -> None:
    made.commit(lib__old__a_dot_py="x = 1\n", b_dot_py="x\n")
    made.commit(lib__old__a_dot_py=None)
    made.commit(lib__old__a_dot_py="x = 1\n")
    last = made.commit(lib__old__a_dot_py=None)
    (made.folder / "lib" / "old").rmdir()
    (tmp_path / "own").mkdir()
    judge = StillTrue(GitPast(made.folder, tmp_path / "own"))
    texts = {one: (f"See {one} first.", None) for one in ("lib/old/", "`lib/old`", "lib/old/a.py")}
    found = judge.gone(texts)
    assert found.keys() == texts.keys()
    assert {one.commit for some in found.values() for one in some} == {last}


def test_any_untracked_file_and_the_parameter_of_a_flag_bring_a_name_back(
    made: Repository, said: Said
) -> None:
    made.commit(a_dot_py='class HeldRow: ...\noption("--map-type")\n')
    made.commit(a_dot_py="x = 1\n")
    (made.folder / "b.py").write_text("def load(map_type): ...\n")
    assert said("Use `--map-type`.") == ""
    (made.folder / "c.py").write_text("class HeldRows: ...\n")
    assert said("Rows are HeldRow.")
    (made.folder / "c.py").write_text("class HeldRow: ...\n")
    assert said("Rows are HeldRow.") == ""


def test_a_new_name_that_few_lines_have_is_not_told(made: Repository, said: Said) -> None:
    made.commit(a_dot_py="a = HeldRow()\n", b_dot_py="b = HeldRow(1)\n", c_dot_py="c = [HeldRow]\n")
    made.commit(a_dot_py="a = NewRow()\n", b_dot_py="b = OtherRow(1)\n", c_dot_py="c = [1]\n")
    assert said("Rows are HeldRow.").endswith(made.git("rev-parse", "HEAD")[:8] + ".")


def test_what_one_check_found_the_next_one_knows(made: Repository, tmp_path: Path) -> None:
    made.commit(a_dot_py="class HeldRow: ...\nclass OldRow: ...\n")
    made.commit(a_dot_py="x = 1\n")
    (tmp_path / "own").mkdir()
    judge = StillTrue(GitPast(made.folder, tmp_path / "own"))
    for text in ("HeldRow", "OldRow", "HeldRow and OldRow"):
        assert len(judge.gone({1: (f"Rows are {text}.", None)})[1]) == text.count("Row")


def test_a_word_of_too_many_lines_is_there_and_hides_no_other(
    made: Repository, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "load_all = 1\n" * 10_000
    made.commit(a_dot_py=f"{many}HeldRow = OldRow = kept_row = last_row = 1\n")
    made.commit(a_dot_py=f"{many}kept_row = last_row = 1\n")
    monkeypatch.setattr(guarded_git, "_MOST_BYTES", 50_000)
    found = said("HeldRow, kept_row, load_all, OldRow and last_row are names.")
    assert found.count("is gone") == 2
    assert "HeldRow" in found
    assert "OldRow" in found


def test_links_and_paths_out_of_the_workspace_are_not_followed(
    made: Repository, said: Said, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("def load_views(): ...\n")
    made.commit(a_dot_py="def load_views():\n    ...\n", sub__secret_dot_py="x = 1\n")
    made.commit(a_dot_py="x = 1\n", sub__secret_dot_py=None)
    (made.folder / "sub").rmdir()
    (made.folder / "sub").symlink_to(outside)
    (made.folder / "link.py").symlink_to(outside / "secret.py")
    assert "`load_views` is gone" in said("Views: `load_views`.")
    assert said("See sub/secret.py.") == ""  # behind a link: not known
    assert said(f"See {outside}/secret.py, /etc/passwd, ../outside/secret.py.") == ""
    assert "is gone" in said(f"See {made.folder}/a.py and `load_views`.")


def test_nothing_that_a_hostile_repository_names_is_run(
    made: Repository, said: Said, tmp_path: Path
) -> None:
    made.commit(a_dot_py="class HeldRow: ...\n", _dot_gitattributes="* filter=bad diff=bad\n")
    made.commit(a_dot_py="x = 1\n")
    touched = tmp_path / "touched"
    with (made.folder / ".git" / "config").open("a") as config:
        for key in ("filter.bad.clean", "diff.bad.command", "diff.bad.textconv", "core.fsmonitor",
                    "core.pager", "diff.external"):  # fmt: skip
            section, _, name = key.rpartition(".")
            kind, _, sub = section.partition(".")
            config.write(f'[{kind}{f" {chr(34)}{sub}{chr(34)}" if sub else ""}]\n'
                         f"\t{name} = touch {touched}; cat\n")  # fmt: skip
    (made.folder / "a.py").write_text("x = 3\n")
    assert "`HeldRow` is gone" in said("Rows are HeldRow.")
    assert not touched.exists()


def test_a_repository_that_is_a_link_is_left_alone(made: Repository, tmp_path: Path) -> None:
    made.commit(a_dot_py="x = 1\n")
    (tmp_path / "link").symlink_to(made.folder)
    (tmp_path / "own").mkdir()
    with pytest.raises(Denied):
        GitPast(tmp_path / "link", tmp_path / "own")


def test_a_repository_without_a_commit_judges_nothing(said: Said) -> None:
    assert said("See app/old.py and commit 1234567.") == ""


def test_names_are_patterns_of_nothing_and_binary_and_huge_files_do_no_harm(
    made: Repository, said: Said
) -> None:
    made.commit(a_dot_py="class HeldRow: ...\n" + "x" * 3_000_000, b_dot_bin="\0" * 1000)
    made.commit(a_dot_py="x = 1\n" * 100_000)
    assert "`HeldRow` is gone" in said("Rows are HeldRow, see `a.*b`, `(((`, `[x`, `--a-(b`.")


def test_a_limit_of_commits_is_said(
    made: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in range(4):
        made.commit(a_dot_py=f"x = {one}\n", old_dot_py="class HeldRow: ...\n" if not one else None)
    monkeypatch.setattr(git_past, "MOST_COMMITS", 2)
    (tmp_path / "own").mkdir()
    judge = StillTrue(GitPast(made.folder, tmp_path / "own"))
    assert judge.gone({"one": ("Rows are HeldRow.", None)}) == {}
    assert judge.limits == {"Only the last 2 commits, since 2026-01-04, were looked at."}


def test_a_limit_of_time_is_said(
    made: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.commit(a_dot_py="class HeldRow: ...\n")
    made.commit(a_dot_py="x = 1\n")
    monkeypatch.setattr(still_true, "_SECONDS", -1)
    (tmp_path / "own").mkdir()
    judge = StillTrue(GitPast(made.folder, tmp_path / "own"))
    assert judge.gone({"one": ("Rows are HeldRow.", None)}) == {}
    assert judge.limits == {"Names were looked for back to 2026-01-03 only."}


def _from(ref: str, **more: object) -> Record:
    source = SourceRef(kind=SourceKind.EXTERNAL_DOCUMENT, company_id="acme", external_ref=ref)
    return Record.model_validate({
        "handle": RecordHandle(provider_key="facts", provider_record_id="1"), "text": "x",
        "scope": Scope(company_id="acme"), "source": source,
        "created_at": START + timedelta(days=1, hours=1), **more,
    })  # fmt: skip


def test_a_source_that_changed_is_told(made: Repository, tmp_path: Path) -> None:
    made.commit(docs__a_dot_md="one\ntwo\nkey: 1\n", b_dot_md="x\n")
    made.commit(docs__a_dot_md="new\none\nthree\nkey: 1\n", b_dot_md=None)
    (tmp_path / "own").mkdir()
    past, folder = GitPast(made.folder, tmp_path / "own"), made.folder
    changed = "Its source docs/a.md{} has changed since 2026-01-02."
    assert changed_source(folder, past, _from("docs/a.md")) == changed.format("")
    assert changed_source(folder, past, _from("docs/a.md:2")) == changed.format(":2")
    gone = f"Its source `b.md` is gone since {past.head[:8]}."
    assert changed_source(folder, past, _from("b.md")) == gone
    for ref in ("docs/a.md:1", "docs/a.md#key", "never.md", "https://a.example/docs/a.md",
                f"../{folder.name}/docs/a.md", "/etc/passwd"):  # fmt: skip
        assert changed_source(folder, past, _from(ref)) is None, ref
    own = _from("docs/a.md", location=Location(path=str(folder / "docs" / "a.md"), line=1))
    assert changed_source(folder, past, own) is None


_BEFORE = {
    "c_dot_toml": "# port is here\n[server]\nport = 80 # w\nhosts = [\n  'a',\n]\n[x]\nname = 1\n",
    "c_dot_json": '{\n  "server": {\n    "port": 80\n  },\n  "name": 1\n}\n',
    "c_dot_yaml": "server:\n  port: 80\nlist:\n- a\nname: 1\n",
    "_dot_env": "export PORT=80\nNAME=1\n",
    "port_dot_yaml": "# port is here\nport: 80\n",
    "a_dot_md": "one\ntwo\nthree\n", "link_dot_md": "x\n", "old_dot_md": "a\nb\nc\nd\n",
}  # fmt: skip
_AFTER = {
    "c_dot_toml": "# ports\n[server]\nport = 81\nhosts = [\n  'b',\n]\n[x]\nname = 1 # same\n",
    "c_dot_json": '{\n  "server": {\n    "port": 81\n  },\n  "name": 1\n}\n',
    "c_dot_yaml": "server:\n  port: 81\nlist:\n- b\nname: 1\n",
    "_dot_env": "export PORT=81\nNAME=1\n",
    "port_dot_yaml": "# the port stands here\nserver:\n  port: '80' # web\n",
    "a_dot_md": "new\none\n2\nthree\n", "new_dot_md": "a\nb\nc\nd\n",
}  # fmt: skip


def test_a_source_changes_with_the_value_that_it_names(made: Repository, tmp_path: Path) -> None:
    made.commit("First", **_BEFORE)
    (made.folder / "link.md").unlink()
    (made.folder / "link.md").symlink_to("/etc/passwd")
    made.commit("Next", **_AFTER, old_dot_md=None)
    (tmp_path / "own").mkdir()
    past, folder = GitPast(made.folder, tmp_path / "own"), made.folder
    for ref in ("c.toml#port", "c.toml#server.port", "c.toml#hosts", "c.json#port", "c.json#server",
                "c.json#server.port", "c.yaml#port", "c.yaml#server.port", "c.yaml#server",
                "c.yaml#list", ".env#PORT", "a.md:1-2", "./a.md", "link.md"):  # fmt: skip
        said = f"Its source {ref} has changed since 2026-01-02."
        assert changed_source(folder, past, _from(ref)) == said, ref
    for ref in ("c.toml#name", "c.toml#x.name", "c.json#name", "c.yaml#name", ".env#NAME",
                "port.yaml#port", "a.md:1", "a.md:3-9", "a.md:0", "a.md#never"):  # fmt: skip
        assert changed_source(folder, past, _from(ref)) is None, ref
    moved = f"Its source `old.md` is gone since {past.head[:8]}, now `new.md`."
    assert changed_source(folder, past, _from("old.md")) == moved
    elsewhere = Location(path=str(tmp_path / "vault" / "facts.md"), line=1)
    assert changed_source(folder, past, _from("a.md", location=elsewhere))
    later = START + timedelta(days=3)
    assert changed_source(folder, past, _from("a.md", updated_at=later)) is None


def test_a_source_that_became_too_large_is_not_gone(
    made: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.commit(a_dot_md="x\n")
    made.commit(a_dot_md="x\n" * 2_000)
    monkeypatch.setattr(guarded_git, "_MOST_BYTES", 2_000)
    (tmp_path / "own").mkdir()
    assert (
        changed_source(made.folder, GitPast(made.folder, tmp_path / "own"), _from("a.md")) is None
    )


def test_what_can_be_no_files_name_harms_nobody(
    made: Repository, said: Said, tmp_path: Path
) -> None:
    made.commit(a_dot_md="x\n" * 3)
    long = "a" * 300
    assert said(f"See src/{long}.py and src/{'b/' * 2_100}c.py.") == ""
    (tmp_path / "other").mkdir()
    past = GitPast(made.folder, tmp_path / "other")
    for ref in (long, f"{long}/b", "b/" * 2_100, "a\0.md", "\ud800.md", f"a.md:{'9' * 5_000}"):
        assert changed_source(made.folder, past, _from(ref)) is None, ref
        assert changed_source(made.folder, None, _from(ref)) is None, ref


def test_a_source_in_a_folder_without_git_goes_by_its_time(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "link.md").symlink_to(tmp_path / "a.md")
    late = START + timedelta(days=9)
    os.utime(tmp_path / "a.md", (late.timestamp(), late.timestamp()))
    said = changed_source(tmp_path, None, _from("a.md"))
    assert said == "Its source a.md was changed on 2026-01-10."
    assert changed_source(tmp_path, None, _from("link.md")) is None
    assert changed_source(tmp_path, None, _from("never.md")) is None
    assert changed_source(tmp_path, None, _from("a.md", created_at=late)) is None
