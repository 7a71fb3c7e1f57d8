"""Label texts as training rows: which labels get one, what they count for, and in which epoch they take part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import elias
from elias.core.settings import StageSettings
from elias.dataset import LabelSet
from elias.dataset.label_texts import count_label_texts, with_label_texts, with_own_ids
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.training.trainer import Callbacks, Trainer, TrainingRows
from helpers.processes import SMALL


def dataset() -> elias.Dataset:
    return elias.Dataset.from_lists(
        ["red apple", "green pear", "blue sky"],
        [["apple", "fruit"], ["fruit"], ["sky"]],
        label_texts={"apple": "a round fruit", "fruit": "sweet", "moon": "far away"},
    )


def test_a_label_with_a_text_and_a_training_row_gets_a_row() -> None:
    data = dataset()
    rows = with_label_texts(data.train, data.labels)
    number = data.labels.number_of
    assert list(rows.texts or [])[:3] == list(data.train.texts or [])
    made = {str(text): rows.labels[3 + i].indices.tolist() for i, text in enumerate(list(rows.texts or [])[3:])}
    assert made == {"a round fruit": [number["apple"]], "sweet": [number["fruit"]]}, "sky has no text, moon no row"
    assert rows.kinds.tolist() == [KIND_TEXT] * 3 + [KIND_LABEL_TEXT] * 2
    assert rows.excluded.shape == rows.labels.shape
    assert rows.excluded.dtype == data.train.excluded.dtype
    assert count_label_texts(data.train, data.labels) == 2
    assert data.training_counts()[1] == 3


def test_alternative_names_are_read_too() -> None:
    data = dataset()
    labels = LabelSet(data.labels.ids, data.labels.texts, [f"or {name}" for name in data.labels.ids])
    assert "a round fruit or apple" in list(with_label_texts(data.train, labels).texts or [])


def test_ids_stand_before_texts_that_differ() -> None:
    data = dataset()
    labels = LabelSet(data.labels.ids, ["fruit" if name == "fruit" else "a thing" for name in data.labels.ids])
    made = list(with_label_texts(data.train, labels, ids=True).texts or [])[3:]
    assert sorted(made) == ["apple a thing", "fruit", "sky a thing"]


def test_without_texts_nothing_changes() -> None:
    data = dataset()
    assert with_label_texts(data.train, LabelSet(data.labels.ids)) is data.train
    vectors = elias.Dataset.from_arrays(np.eye(3, dtype=np.float32), sp.csr_matrix(np.eye(3, dtype=np.float32)))
    assert with_label_texts(vectors.train, vectors.labels) is vectors.train
    assert count_label_texts(vectors.train, vectors.labels) == 0


def test_a_text_whose_id_is_a_label_becomes_a_positive_of_it() -> None:
    """p2 is nobody's label but its own, p3 is no label, and a pair that the user excluded stays excluded."""
    data = elias.Dataset.from_lists(
        ["first", "second", "third", "fourth"],
        [["p1", "p0"], ["p0"], ["p1"], ["p0"]],
        ids=["p0", "p1", "p2", "p3"],
        label_texts={"p2": "third"},
        exclude_own_id=True,
    )
    rows, number = data.train, data.labels.number_of
    wanted = [{"p0", "p1"}, {"p0", "p1"}, {"p1"}, {"p0"}]
    assert rows.labels[0].nnz == 1, "its own id is no positive before"
    both = rows.excluded.tolil()
    both[3, number["p1"]] = True
    learned = with_own_ids(replace(rows, excluded=sp.csr_matrix(both)), data.labels)
    assert [{data.labels.ids[label] for label in learned.labels[row].indices} for row in range(4)] == wanted
    assert learned.labels.has_sorted_indices
    assert set(zip(*map(np.ndarray.tolist, learned.excluded.nonzero()), strict=True)) == {
        (2, number["p2"]), (3, number["p1"])
    }  # fmt: skip
    assert (learned.labels.dtype, learned.excluded.dtype) == (rows.labels.dtype, rows.excluded.dtype)
    assert rows.excluded.nnz == 3, "the rows themselves stay as they are"
    nameless = replace(rows, ids=None)
    assert with_own_ids(nameless, data.labels) is nameless


def test_every_epoch_trains_on_every_label_text(tiny_model: elias.Model) -> None:
    kinds = np.repeat(np.uint8([KIND_TEXT, KIND_LABEL_TEXT]), [7, 10])
    labels = elias.Dataset.from_lists(["x"] * 17, [["a"]] * 17).train.labels
    rows = TrainingRows(None, labels, labels.astype(bool), np.ones(17, dtype=np.float32), kinds)
    trainer = Trainer(
        tiny_model.network, rows, rows, StageSettings(epochs=5, batch_size=3), stage="s", seed=0,
        callbacks=Callbacks(lambda network: None),
    )  # fmt: skip
    assert trainer.steps_per_epoch == 6
    assert trainer.label_counts.tolist() == [7], "label texts do not count"
    orders = []
    for epoch in range(2):
        trainer.at = replace(trainer.at, epoch=epoch)
        orders.append(trainer._rows_of_epoch().tolist())
        assert sorted(orders[-1]) == list(range(17))
    assert orders[0] != orders[1]


def test_label_texts_improve_a_model_whose_rows_lack_words(tiny_dataset: Path) -> None:
    """The label texts of the small dataset hold every word that belongs to a label; few rows hold all of them."""
    data = elias.load_dataset(tiny_dataset)
    rows = np.arange(150)
    data = replace(data, train=data.train.take(rows))
    found = {}
    for is_on in (True, False):
        settings = elias.Settings().updated({**SMALL, "features.label_texts": is_on, "features.min_df": 1})
        model = elias.fit(data, settings=settings)
        assert model.n_train == 150
        from elias.model.evaluate import evaluate_model

        found[is_on] = evaluate_model(model, data).metrics["nDCG@5"]
    assert found[True] > found[False]
