"""What every predictor promises, whatever it was trained on: one suite for all of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from elias import kernels
from elias.core.errors import InputError
from elias.dataset import Dataset
from elias.model.ensemble import Ensemble
from elias.model.model import Model
from helpers.processes import SMALL

KINDS = ["bag, both stages", "bag, stage 1", "sparse vectors", "dense vectors", "stacked, calibrated", "ensemble"]
Predictor = Model | Ensemble


def fitted(data: Dataset, **changes: Any) -> Predictor:
    return elias.fit(data, settings=elias.Settings().updated({**SMALL, **changes}))


def members_of(model: Predictor) -> list[Model]:
    """Itself, or the members of an ensemble."""
    return model.members if isinstance(model, Ensemble) else [model]


@pytest.fixture(scope="module", params=KINDS)
def predictor(request: pytest.FixtureRequest, tiny_dataset: Path, tiny_model: Model) -> tuple[Predictor, Any]:
    """(a model, 40 inputs it understands)"""
    data = elias.load_dataset(tiny_dataset)
    assert data.test is not None
    assert data.test.texts is not None
    texts = data.test.texts[:40]
    if request.param == KINDS[0]:
        return tiny_model, texts
    if request.param == KINDS[1]:
        return fitted(data, **{"stage2.epochs": 0}), texts
    if request.param in KINDS[4:]:
        return request.getfixturevalue("ensemble" if request.param == "ensemble" else "stacked_model"), texts
    assert tiny_model.vectorizer is not None
    assert data.train.texts is not None
    vectors = tiny_model.vectorizer.transform(list(data.train.texts))
    inputs = tiny_model.vectorizer.transform(texts)
    if request.param == KINDS[3]:
        project = np.random.default_rng(0).normal(size=(vectors.shape[1], 24)).astype(np.float32)
        vectors, inputs = np.asarray(vectors @ project), np.asarray(inputs @ project)
    return fitted(Dataset.from_arrays(vectors, data.train.labels, label_ids=data.labels.ids)), inputs


def test_shape_order_and_names(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    found = model.predict(inputs, k=7)
    assert found.labels.shape == found.scores.shape == (40, 7)
    assert (found.labels.dtype, found.scores.dtype) == (np.int32, np.float32)
    assert (found.labels >= 0).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert ((found.scores > 0) & (found.scores <= 1)).all()
    assert all(len(set(row)) == 7 for row in found.labels.tolist())
    names = found.named()
    assert names[3][0] == (model.labels.ids[found.labels[3, 0]], found.scores[3, 0])
    np.testing.assert_array_equal(model.predict(inputs, k=3).labels, found.labels[:, :3])


@pytest.mark.parametrize("use_kernels", [True, False])
def test_a_batch_of_one_is_a_batch(predictor: tuple[Predictor, Any], use_kernels: bool) -> None:
    """One input at a time, with labels left out, from a list, with parts: the labels and scores of the batch."""
    model, inputs = predictor
    names = model.labels.ids
    every_option: list[dict[str, Any]] = [{}, {"block": names[:10]}, {"allow": names[5:30]}, {"explain": True}]
    with kernels.reference(not use_kernels):
        for options in every_option:
            together = model.predict(inputs, k=5, **options)
            for row in range(0, 40, 3):
                alone = model.predict(inputs[row : row + 1], k=5, **options)
                np.testing.assert_array_equal(alone.labels[0], together.labels[row])
                np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=0, atol=1e-6)
                for name, values in (alone.parts or {}).items():
                    assert together.parts is not None
                    np.testing.assert_allclose(values[0], together.parts[name][row], rtol=1e-5, atol=1e-6)


def test_threads_do_not_disturb_each_other(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    names = model.labels.ids
    calls: list[Callable[[], Any]] = [
        lambda: model.predict(inputs, k=5, explain=True),
        lambda: model.predict(inputs[:7], k=3, block=names[:10]),
        lambda: model.predict(inputs[:9], k=4, allow=names[5:30]),
        lambda: model.predict(inputs[10:11], k=60),
    ]
    serial = [call() for call in calls]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for expected, found in zip(serial, pool.map(lambda call: call(), calls), strict=True):
                np.testing.assert_array_equal(found.labels, expected.labels)
                np.testing.assert_array_equal(found.scores, expected.scores)


def test_ids_are_echoed(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    ids = [f"row {number}" for number in range(40)]
    assert model.predict(inputs, ids=ids).ids == ids
    with pytest.raises(InputError, match="2 ids for 40 inputs"):
        model.predict(inputs, ids=["a", "b"])


def test_more_labels_than_there_are(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    found = model.predict(inputs, k=1000)
    assert found.labels.shape == (40, len(model.labels))
    with pytest.raises(InputError, match="k=0"):
        model.predict(inputs, k=0)


def test_no_inputs(predictor: tuple[Predictor, Any]) -> None:
    model, _ = predictor
    found = model.predict([], k=3, explain=True)
    assert (len(found), found.labels.shape, found.named(), found.records()) == (0, (0, 3), [], [])
    assert len(model.predict([], k=3, allow=model.labels.ids[:2], ids=[])) == 0


def test_the_parts_explain_the_score(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    for found in (
        model.predict(inputs, k=6, explain=True),
        model.predict(inputs, k=6, explain=True, allow=model.labels.ids[10:20]),
    ):
        assert found.parts is not None
        members = members_of(model)
        if members[0].reranker is None:
            product = found.parts["cluster_score"] * found.parts["edge_score"] * found.parts["classifier"]
            np.testing.assert_allclose(product, found.scores, rtol=1e-6)
        else:
            assert {"ranker", "words"} <= found.parts.keys()
        clusters, whose = found.parts["cluster"], found.parts.get("member", np.zeros_like(found.labels))
        assert ((clusters >= 0) & (clusters < members[0].searcher.index.n_clusters)).all()
        for label, cluster, member in zip(found.labels[:, 0], clusters[:, 0], whose[:, 0], strict=True):
            index = members[member].searcher.index
            assert label in index.labels[index.indptr[cluster] : index.indptr[cluster + 1]]
    assert model.predict(inputs, k=2).parts is None


def test_block_and_allow(predictor: tuple[Predictor, Any]) -> None:
    model, inputs = predictor
    names = model.labels.ids
    best = {row[0][0] for row in model.predict(inputs, k=1).named()}
    blocked = model.predict(inputs, k=60, block=sorted(best))
    assert not best & {name for row in blocked.named() for name, _ in row}
    allowed = model.predict(inputs, k=60, allow=names[:10], block=names[5:10])
    for row in allowed.named():
        assert {name for name, _ in row} == set(names[:5])
    assert allowed.labels.shape == (40, 60)
    assert all(row == [] for row in model.predict(inputs, allow=[]).named())
    for what in ("allow", "block"):
        with pytest.raises(InputError, match=rf'{what}: unknown label "label-1x"; did you mean "label-'):
            model.predict(inputs, **{what: ["label-1x"]})


def test_candidates_get_the_score_they_have_in_the_search(predictor: tuple[Predictor, Any]) -> None:
    """With every cluster in the beam and every label in the shortlist, both ways are exact."""
    model, inputs = predictor
    assert all(one.network.settings.beam_size >= one.searcher.index.n_clusters for one in members_of(model))
    everything = model.predict(inputs, k=60)
    named = [dict(row) for row in everything.named()]
    rng = np.random.default_rng(0)
    candidates = [
        [model.labels.ids[label] for label in rng.choice(60, row % 5 + 1, replace=False)] for row in range(40)
    ]
    found = model.predict(inputs, k=3, candidates=candidates).named()
    for row in range(40):
        expected = sorted(candidates[row], key=lambda name: -named[row][name])[:3]
        assert [name for name, _ in found[row]] == expected
        np.testing.assert_allclose([s for _, s in found[row]], [named[row][name] for name in expected], rtol=1e-5)
    both = model.predict(inputs, k=60, candidates=candidates, allow=model.labels.ids[:30]).named()
    for row in range(40):
        assert {name for name, _ in both[row]} == set(candidates[row]) & set(model.labels.ids[:30])
    with pytest.raises(InputError, match="3 candidate lists for 40 inputs"):
        model.predict(inputs, candidates=[[], [], []])
    with pytest.raises(InputError, match=r'candidates of input 0: "label-01" is one text'):
        model.predict(inputs[:1], candidates=["label-01"])


def test_saved_and_loaded_it_says_the_same(predictor: tuple[Predictor, Any], tmp_path: Path) -> None:
    model, inputs = predictor
    model.save(tmp_path / "model")
    loaded = elias.load(tmp_path / "model", threads=2)
    before, after = model.predict(inputs, k=9, explain=True), loaded.predict(inputs, k=9, explain=True)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)
    assert loaded.labels.ids == model.labels.ids
    for ours, theirs in zip(members_of(loaded), members_of(model), strict=True):
        assert ours.cluster_words == theirs.cluster_words


def test_inputs_of_the_wrong_kind(predictor: tuple[Predictor, Any]) -> None:
    model, _ = predictor
    wrong: list[Any] = [np.zeros((2, 3)), sp.csr_matrix((2, 3), dtype=np.float32), [1, 2], [None], [["a", "b"]]]
    if members_of(model)[0].vectorizer is None:
        width = model.about["dataset"]["features"]
        wrong += ["a text", ["a text"], np.full((2, width), np.nan), np.zeros((1, 1, width))]
    for given in wrong:
        with pytest.raises(InputError):
            model.predict(given)
