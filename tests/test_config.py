from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import get_origin

import pytest

from memtui import config
from memtui.config import Paths, Settings, find_paths, load_settings, system_zone
from memtui.contract import Invalid
from memtui.paths import TABLES


@pytest.fixture
def home(paths: Paths) -> Paths:
    paths.create()
    return paths


def write(home: Paths, text: str) -> None:
    home.config_file.write_text(text, encoding="utf-8")


def test_without_anything_the_defaults_hold(home: Paths) -> None:
    settings = load_settings(home)
    assert (settings.company, settings.read_only, settings.provider_timeout_ms) == (
        "",
        False,
        10_000,
    )
    assert settings.principal.startswith("user:")
    assert settings.keymap == {}


@pytest.mark.parametrize(
    ("field", "flag", "variable", "toml"),
    [
        ("company", "flagged", "environed", '"filed"'),
        ("provider_timeout_ms", 1111, "2222", "3333"),
        ("score_threshold", 0.1, "0.2", "0.3"),
        ("timezone", "Asia/Tokyo", "Europe/Berlin", '"America/New_York"'),
        ("principal", "user:flag", "user:env", '"user:file"'),
    ],
)
def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    home: Paths, monkeypatch: pytest.MonkeyPatch, field: str, flag: object, variable: str, toml: str
) -> None:
    kind: Callable[[str], object] = type(flag)
    default = getattr(load_settings(home), field)
    write(home, f"{field} = {toml}\n")
    from_file = getattr(load_settings(home), field)
    assert from_file == kind(toml.strip('"')) != default
    monkeypatch.setenv(f"MEMTUI_{field.upper()}", variable)
    assert getattr(load_settings(home), field) == kind(variable)
    assert getattr(load_settings(home, **{field: flag}), field) == flag
    assert getattr(load_settings(home, **{field: None}), field) == kind(variable)


def test_a_false_flag_wins_too(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "read_only = true\n")
    assert load_settings(home).read_only
    assert not load_settings(home, read_only=False).read_only
    monkeypatch.setenv("MEMTUI_READ_ONLY", "false")
    assert not load_settings(home).read_only


def test_one_load_leaves_nothing_for_the_next(home: Paths, tmp_path: Path) -> None:
    write(home, 'company = "one"\n')
    assert load_settings(home).company == "one"
    assert load_settings(find_paths(tmp_path / "elsewhere")).company == ""
    assert Settings().company == ""


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(home: Paths) -> None:
    write(home, 'compny = "acme"\n')
    with pytest.raises(Invalid, match=r"no setting compny; did you mean company\? It is in .*toml"):
        load_settings(home)


def test_an_unknown_variable_is_refused_with_the_nearest(
    home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTUI_READONLY", "1")
    with pytest.raises(Invalid, match="no setting MEMTUI_READONLY; did you mean") as caught:
        load_settings(home)
    assert str(caught.value).endswith("MEMTUI_READ_ONLY? It is in the environment.")


def test_a_key_like_no_other_is_answered_with_the_nearest(home: Paths) -> None:
    write(home, "zzzzzz = 1\n")
    with pytest.raises(Invalid, match=r"of \d+ settings the nearest are timezone, "):
        load_settings(home)


@pytest.mark.parametrize("text", ["company = ", "[keymap", "\x00", 'a = "\ud800"'])
def test_bad_toml_is_one_sentence(home: Paths, text: str) -> None:
    home.config_file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(Invalid, match="is not valid TOML"):
        load_settings(home)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("provider_timeout_ms = 0", "provider_timeout_ms"),
        ('provider_timeout_ms = "soon"', "provider_timeout_ms"),
        ("score_threshold = 1.5", "score_threshold"),
        ('timezone = "Mars/Olympus"', "timezone"),
        ('timezone = "../../etc/passwd"', "timezone"),
        ("company = 3", "company"),
        ('principal = "ana"', "principal"),
        ('acts_for = "user:"', "acts_for"),
        ("keymap = 3", "keymap"),
        ("[keymap]\nundo = 3", "keymap.undo"),
    ],
)
def test_a_bad_value_names_its_setting(home: Paths, text: str, field: str) -> None:
    write(home, text)
    with pytest.raises(Invalid, match=f"The setting {field} does not fit"):
        load_settings(home)


def test_a_settings_file_that_cannot_be_read_is_said(home: Paths) -> None:
    home.config_file.mkdir()
    with pytest.raises(Invalid, match="Cannot read"):
        load_settings(home)


def test_the_keymap_takes_dotted_and_quoted_keys_and_nested_variables(
    home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, '[keymap]\nrecords.forget = "d,delete"\n"app.quit" = "q"\n')
    assert load_settings(home).keymap == {"records.forget": "d,delete", "app.quit": "q"}
    monkeypatch.setenv("MEMTUI_KEYMAP__RECORDS__FORGET", "x")
    monkeypatch.setenv("MEMTUI_KEYMAP__app.help", "h")
    assert load_settings(home).keymap == {
        "records.forget": "x",
        "app.quit": "q",
        "app.help": "h",
    }


def test_the_keymap_is_also_json_in_one_variable(
    home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTUI_KEYMAP", '{"app.quit": "q"}')
    assert load_settings(home).keymap == {"app.quit": "q"}
    monkeypatch.setenv("MEMTUI_KEYMAP__APP__HELP", "1")
    assert load_settings(home).keymap == {"app.quit": "q", "app.help": "1"}
    monkeypatch.setenv("MEMTUI_KEYMAP", "q")
    with pytest.raises(Invalid, match="MEMTUI_KEYMAP in the environment is not a JSON object"):
        load_settings(home)


@pytest.mark.parametrize("text", ["3", "[1]", "true"])
def test_a_table_that_is_other_json_names_its_setting(
    home: Paths, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("MEMTUI_SCORE_THRESHOLDS", text)
    with pytest.raises(Invalid, match="The setting score_thresholds does not fit"):
        load_settings(home)
    monkeypatch.setenv("MEMTUI_SCORE_THRESHOLDS", "{")
    with pytest.raises(Invalid, match="MEMTUI_SCORE_THRESHOLDS in the environment is not a JSON"):
        load_settings(home)


def test_a_table_of_numbers_comes_from_the_file_and_the_environment(
    home: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "[score_thresholds]\nkb = 0.7\nnotes = 0.2\n")
    monkeypatch.setenv("MEMTUI_SCORE_THRESHOLDS", '{"kb": 0.6, "wiki": 0.1}')
    monkeypatch.setenv("MEMTUI_SCORE_THRESHOLDS__KB", "0.9")
    assert load_settings(home).score_thresholds == {"kb": 0.9, "notes": 0.2, "wiki": 0.1}


def test_everything_is_under_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTUI_HOME", str(tmp_path / "named"))
    paths = find_paths()
    assert paths.data == paths.config == tmp_path / "named"
    for path in (paths.database, paths.config_file, paths.session_file, paths.log_file):
        assert path.parent == tmp_path / "named"
    assert paths.binding_dir("b1") == tmp_path / "named" / "bindings" / "b1"
    assert find_paths(tmp_path / "flag").data == tmp_path / "flag"
    assert load_settings(paths).company == ""


def test_without_a_home_the_platform_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    paths = find_paths()
    assert (paths.data, paths.config) == (
        tmp_path / "data" / "memtui",
        tmp_path / "config" / "memtui",
    )


def test_a_home_of_nobody_is_refused() -> None:
    with pytest.raises(Invalid, match="Nobody has the home folder"):
        find_paths(Path("~no-such-person-here/x"))


def test_the_folders_are_private_even_if_they_were_not(new_paths: Paths) -> None:
    new_paths.data.mkdir(mode=0o755)
    new_paths.create()
    assert stat.S_IMODE(new_paths.data.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Invalid, match="point MEMTUI_HOME at one that you can write"):
            find_paths(home).create()
    with pytest.raises(Invalid, match="Cannot read"):
        load_settings(find_paths(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("wish", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Kathmandu", "Asia/Kathmandu"),
        ("/usr/share/zoneinfo/America/Argentina/Ushuaia", "America/Argentina/Ushuaia"),
        ("", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", None),
        ("/etc/passwd", None),
        ("../../etc/passwd", None),
    ],
)
def test_the_zone_that_tz_names(
    monkeypatch: pytest.MonkeyPatch, wish: str, zone: str | None
) -> None:
    monkeypatch.setenv("TZ", wish)
    assert system_zone() == zone


def test_the_zone_that_the_system_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Paths
) -> None:
    link, name = tmp_path / "localtime", tmp_path / "timezone"
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(config, "_LOCALTIME", link)
    monkeypatch.setattr(config, "_ZONE_FILE", name)
    assert system_zone() is None
    assert load_settings(home).zone_name is None
    name.write_text("Asia/Tokyo\n")
    assert system_zone() == "Asia/Tokyo"
    link.symlink_to("/var/db/timezone/zoneinfo/Europe/Berlin")
    assert system_zone() == "Europe/Berlin"
    assert load_settings(home).zone_name == "Europe/Berlin"
    assert load_settings(home, timezone="America/Lima").zone_name == "America/Lima"


def test_every_setting_that_holds_several_values_is_read_as_a_table() -> None:
    fields = Settings.model_fields.items()
    assert {name for name, field in fields if get_origin(field.annotation) is dict} == TABLES
