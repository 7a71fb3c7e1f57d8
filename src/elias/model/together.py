"""Members of an ensemble that were made from the same words: tf-idf, sums over words and margins are computed once.

    members of a text share    tf-idf, v.x, t.x, c.x, margin, path, votes, the labels that the words find
    each one's own             phi, the labels that its network finds, its final score

In: models that hold the very same tables (`load` sees to it where files are the same). Out: what each one predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.predictions import Predictions, stack
from ..core.ragged import Ragged
from ..encoders import Inputs
from ..network.searcher import BATCH
from ..ranking.gathering import gather_together, words_of
from .model import Model


def share_words(members: Sequence[Model]) -> bool:
    """Whether all members read the same words from the same tables, on the CPU."""
    first = members[0]
    if first.plus is None or len(members) < 2:
        return False
    for member in members:
        plus = member.plus
        if plus is None or member.network.device.type != "cpu" or member.vectorizer is not first.vectorizer:
            return False
        if plus.lexical is not first.plus.lexical or plus.ranker is not first.plus.ranker:
            return False
        if plus.neighbours is not first.plus.neighbours or plus.tree is not first.plus.tree:
            return False
        if plus.embedding or plus.sizes(1) != first.plus.sizes(1):
            return False
    return True


def find_together(
    members: Sequence[Model], given: Inputs, k: int, excluded_of: Callable[[np.ndarray], Ragged | None], explain: bool
) -> list[Predictions]:
    """The k best labels of each member. `excluded_of` says what some rows must not be given."""
    prepared = [member.network.encoder.prepare(given) for member in members]
    pieces: list[list[Predictions]] = [[] for _ in members]
    for start in range(0, len(given), BATCH):
        rows = np.arange(start, min(start + BATCH, len(given)))
        queries = [member.encode(given, own, rows) for member, own in zip(members, prepared, strict=True)]
        first = members[0].plus
        assert first is not None
        searchers, bow, sizes = [member.searcher for member in members], words_of(given, rows), first.sizes(k)
        found = gather_together(
            searchers, queries, first.tables, bow, excluded_of(rows), sizes, threads=first.threads
        )  # fmt: skip
        for member, evidence, own in zip(members, found, pieces, strict=True):
            assert member.plus is not None
            own.append(member.plus.rank(evidence, k, explain))
    return [stack(own) if own else Predictions.empty(k, explain=explain) for own in pieces]
