from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.contract import Filter, Record, RecordHandle, Scope
from memtui.fuzzy import finds
from memtui.provider_kit.matching import matcher
from memtui.provider_kit.search import ranked
from memtui.text_analysis import TOKENIZER, folded, indexed, take_apart, terms_of

SAME = [
    ("ﾊﾝｶｸ", "ハンカク"),
    ("ＡＰＩ ｋｅｙ", "API KEY"),
    ("РАЗВЁРТЫВАНИЕ", "развертывание"),
    ("Καλημέρα", "ΚΑΛΗΜΕΡΑ"),
    ("σοφός", "ΣΟΦΟΣ"),
    ("Łódź", "lodz"),
    ("Đà Nẵng", "da nang"),
    ("Straße", "STRASSE"),
    ("mañana", "man\u0303ana"),
    ("مُحَمَّد", "محمد"),
    ("İstanbul ılık", "istanbul ilik"),
    ("ﬁle œuvre", "file oeuvre"),
    ("so\u00adft\u200b", "soft"),
    ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
    ("don’t", "don't"),
    ("ver ٤٢", "ver 42"),
    ("שָׁלוֹם", "שלום"),
]
APART = [("が", "か"), ("हिन्दी", "हन्दी"), ("C#", "C"), ("กุ", "กา"), ("x²y", "xy")]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_the_same(one: str, other: str) -> None:
    record = Record(
        handle=RecordHandle(provider_key="p", provider_record_id="1"),
        scope=Scope(company_id="acme"),
        kind="note",
        text=f"about {one} here",
    )
    assert folded(one) == folded(other)
    assert [found.text for found in ranked([record], other)] == [record.text]
    assert matcher(Filter(text=other))(record)
    assert finds(other.split(maxsplit=1)[0], one)


@pytest.mark.parametrize(("one", "other"), APART)
def test_marks_that_make_another_word_count(one: str, other: str) -> None:
    assert folded(one) != folded(other)


@given(st.text())
def test_folding_again_changes_nothing(text: str) -> None:
    assert folded(folded(text)) == folded(text)


@given(st.text(st.characters(codec="utf-8", max_codepoint=0x2FFFF), max_size=20))
def test_full_text_search_finds_a_text_by_each_of_its_terms(text: str) -> None:
    words = take_apart(text)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f'CREATE VIRTUAL TABLE t USING fts5(x, tokenize="{TOKENIZER}")')
        database.execute("INSERT INTO t VALUES (?)", (indexed(text),))
        for term in words.pieces:
            found = f'"{term}"{"*" * (len(term) == 1)}'
            assert database.execute("SELECT 1 FROM t WHERE t MATCH ?", (found,)).fetchone()


def test_text_without_spaces_is_pairs_beside_its_words() -> None:
    assert terms_of("Docker部署 好") == (["docker"], ["部署", "好"])
    assert take_apart("the 部署").kept == ()


@pytest.mark.parametrize(
    ("query", "dates"),
    [
        ("What did we decide on 16 June, 2023?", ("d20230616",)),
        ("the 5th of October and May 3rd, 2024", ("d1005", "d20240503")),
        ("between 2023-06-16 and 2024-01", ("d20230616", "d202401")),
        ("in May", ("d05",)),
        ("since Sept. or Dec 2023", ("d09", "d202312")),
        ("who may see this, and may it march on?", ()),
        ("version 2023 has 3 marks", ()),
        ("", ()),
    ],
)
def test_a_query_names_days_and_months(query: str, dates: tuple[str, ...]) -> None:
    assert take_apart(query).dates == dates


def test_records_without_an_index_are_found_by_their_dates_too() -> None:
    scope = Scope(company_id="acme")
    records = [
        Record(
            handle=RecordHandle(provider_key="fake", provider_record_id=str(day)), scope=scope,
            text="A tapir.", kind="note", created_at=datetime(2025, 6, day, tzinfo=UTC),
        )
        for day in (16, 17)
    ]  # fmt: skip
    found = ranked(records, "what was on 17 June 2025?")
    assert [one.handle.provider_record_id for one in found] == ["17"]
    assert len(ranked(records, "in June")) == len(records)
    assert not ranked(records, "who may see it")
