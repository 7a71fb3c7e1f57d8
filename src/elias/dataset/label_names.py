"""Label ids that are names: where no label file gives texts, "Science fiction -- Juvenile" is a text, "Q42-7" is not.

    word      letters only: at least 3 with a vowel in Latin script, 2 in other alphabets, 1 in Han and the like
    name      an id whose words have at least half of its letters and digits

Ids are label texts if at least half of them are names, if no other id has the same words for at least half of the names
("class 1", "class 2" are numbers), and if at least a quarter of the names share a word with the training texts:
otherwise training on them would add words that no text contains. In: label ids with training rows, and training texts.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ..core.tokenize import tokenize
from .labels import LabelSet
from .rows import TextColumn

if TYPE_CHECKING:
    from .dataset import Dataset

NAMES_SHARE, DIFFERENT_SHARE, IN_TEXTS_SHARE = 0.5, 0.5, 0.25
LABELS_LOOKED_AT, CHARACTERS_LOOKED_AT = 20_000, 4_000_000
VOWELS = set("aeiouyæœø")


def ids_are_names(ids: Sequence[str], texts: TextColumn) -> bool:
    """Whether label ids serve as texts; `ids` are those of labels with a training row."""
    some = [ids[i] for i in np.linspace(0, len(ids) - 1, min(len(ids), LABELS_LOOKED_AT)).astype(int)] if ids else []
    names = [words for label in some if (words := _words(label))]
    if not names or len(names) < NAMES_SHARE * len(some):
        return False
    same = Counter(map(frozenset, names))
    if sum(same[frozenset(words)] == 1 for words in names) < DIFFERENT_SHARE * len(names):
        return False
    vocabulary = {word for text in _some_of(texts) for word in tokenize(text)}
    return sum(not vocabulary.isdisjoint(words) for words in names) >= IN_TEXTS_SHARE * len(names)


def with_names(data: Dataset, label_texts: bool | None) -> Dataset:
    """The dataset as a fit with `features.label_texts` sees it: true uses ids as texts even if they look like codes."""
    if not label_texts or data.labels.has_texts or data.train.texts is None:
        return data
    return replace(data, labels=LabelSet(data.labels.ids, data.labels.ids))


def _words(label: str) -> list[str]:
    """The words of an id; none if it is not a name."""
    tokens = tokenize(label)
    words = [token for token in tokens if _is_word(token)]
    return words if 2 * sum(map(len, words)) >= sum(map(len, tokens)) else []


def _is_word(token: str) -> bool:
    if not all(unicodedata.category(character)[0] in "LM" for character in token):
        return False
    plain = unicodedata.normalize("NFD", token)
    if "LATIN" in unicodedata.name(plain[0], ""):
        return len(token) > 2 and not VOWELS.isdisjoint(plain)
    return len(token) > 1 or unicodedata.category(token[0]) == "Lo"  # letters without case: Han, Kana, Thai, ...


def _some_of(texts: TextColumn) -> Iterator[str]:
    """Texts evenly spaced over all rows, of so many characters in sum."""
    mean = max(1.0, float(texts.lengths().mean())) if len(texts) else 1.0
    step = max(1, round(len(texts) * mean / CHARACTERS_LOOKED_AT))
    return islice((texts[row] for row in range(0, len(texts), step)), len(texts))
