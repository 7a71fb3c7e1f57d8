"""Words of texts in many languages, and their counts, against a definition character by character."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.core.tokenize import LONGEST_WORD, TokenCounts, Vocabulary, text_chunks, tokenize

SPACELESS = [
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0x1780, 0x17FF), (0x3005, 0x3007),
    (0x3021, 0x3029), (0x3038, 0x303B), (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF), (0x1AFF0, 0x1AFFF), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
]  # fmt: skip


def slow_words(text: str) -> list[str]:
    """The definition, one character at a time."""
    words: list[str] = []
    kind = ""  # of the word being written: "run", "one" (a character without spaces), "marks", or "" for none
    for char in unicodedata.normalize("NFKC", text).lower():
        spaceless = any(first <= ord(char) <= last for first, last in SPACELESS)
        mark = unicodedata.category(char)[0] == "M"
        if mark and (kind == "one" or kind == "marks" or (kind == "run" and not spaceless)):
            words[-1] += char
        elif mark:
            words.append(char)
            kind = "marks" if spaceless else "run"
        elif not char.isalnum():
            kind = ""
        elif spaceless:
            words.append(char)
            kind = "one"
        elif kind == "run":
            words[-1] += char
        else:
            words.append(char)
            kind = "run"
    return [word for word in words if len(word) <= LONGEST_WORD]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("Hello, World_2 x--y", ["hello", "world", "2", "x", "y"]),
        ("Ärger für ÉCOLE naïve", ["ärger", "für", "école", "naïve"]),
        ("ﬁne \uff26\uff55\uff4c\uff4c x²", ["fine", "full", "x2"]),
        ("Кабели и ДРУГОЕ", ["кабели", "и", "другое"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("اللغة العربية ٣٤", ["اللغة", "العربية", "٣٤"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("深圳ABC電線 ok", ["深", "圳", "abc", "電", "線", "ok"]),
        ("ケーブル・テスト", ["ケ", "ー", "ブ", "ル", "テ", "ス", "ト"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("\U0001d401old 𠀀𠀁 😀 cat", ["bold", "𠀀", "𠀁", "cat"]),
        ("nul\0byte \ud800lone\udfff", ["nul", "byte", "lone"]),
        ("a" * 64 + " " + "b" * 65, ["a" * 64]),
        ("é" * 64 + " " + "é" * 65, ["é" * 64]),
    ],
)
def test_texts_in_many_languages_are_split_into_words(text: str, words: list[str]) -> None:
    assert tokenize(text) == words


MIXED = st.text(
    alphabet=st.one_of(
        st.sampled_from(
            "aZ0_ -.éßİſǅ\u0301\u0e31\u0e01\u0e3f漢ーカ・\U0001f600\U00020000\U00011000\U0001e94b\u1780\u17d2"
        ),
        st.characters(),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(MIXED)
def test_agrees_with_the_definition(text: str) -> None:
    assert tokenize(text) == slow_words(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(MIXED, max_size=8))
def test_counts_agree_with_counter(texts: list[str]) -> None:
    known = Vocabulary(sorted({word for text in texts[::2] for word in tokenize(text)}))
    counts = known.count_matrix(texts)
    assert counts.shape == (len(texts), len(known))
    for row, text in enumerate(texts):
        expected = Counter(word for word in tokenize(text) if word in known.words)
        got = {known.words[word]: int(counts[row, word]) for word in counts[row].indices}
        assert got == dict(expected)
        ids, own = known.count(text)
        assert {known.words[word]: count for word, count in zip(ids, own, strict=True)} == expected
        assert (np.diff(ids) > 0).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(MIXED, max_size=8), st.integers(1, 3), st.integers(1, 20), st.integers(1, 200))
def test_a_built_vocabulary_keeps_order_and_counts(
    texts: list[str], min_df: int, max_words: int, characters: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elias.core.tokenize.text_chunks.__defaults__", (characters,))
        tokens = TokenCounts.of(texts)
    words, df = tokens.vocabulary(min_df, max_words)
    expected = Counter(word for text in texts for word in set(tokenize(text)))
    kept = sorted((word for word in expected if expected[word] >= min_df), key=lambda word: (-expected[word], word))
    assert list(words.words) == kept[:max_words]
    assert df.tolist() == [expected[word] for word in words.words]
    assert tokens.over(words).toarray().tolist() == words.count_matrix(texts).toarray().tolist()
    some = np.arange(0, len(texts), 2)
    assert tokens.take(some).over(words).toarray().tolist() == words.count_matrix(texts[::2]).toarray().tolist()
    assert tokens.take(some).vocabulary(1, 99)[0].words == TokenCounts.of(texts[::2]).vocabulary(1, 99)[0].words


def test_counts_are_clipped() -> None:
    assert Vocabulary(["a"]).count_matrix(["a " * 70_000, "b"]).toarray().tolist() == [[65_535], [0]]


def test_chunks_hold_every_text_in_order() -> None:
    texts = ["x" * size for size in range(50)]
    chunks = list(text_chunks(texts, 100))
    assert [text for chunk in chunks for text in chunk] == texts
    assert len(chunks) > 5
    assert list(text_chunks([])) == []
    assert [array.tolist() for array in Vocabulary(["a"]).count("b a A")] == [[0], [2]]
    assert Vocabulary(["a"]).count("b a A")[0].dtype == np.int32


def test_every_combining_mark_belongs_to_its_word() -> None:
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    composed = [mark for mark in marks if len(unicodedata.normalize("NFKC", "x" + mark)) != 2]
    for mark in set(marks) - set(composed):
        assert "".join(tokenize(f"x{mark}\U0001f600")) == unicodedata.normalize("NFKC", "x" + mark).lower()
