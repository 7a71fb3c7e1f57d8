"""Excerpts of training texts: how they are cut, written, opened and refused; the setting that leaves them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elias import Ensemble, load
from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.model.compaction import compact
from elias.model.model import Model
from elias.model.storage import load_model
from elias.ranking.training_texts import CUT, LONGEST, NAME, TrainingTexts, excerpt_of
from helpers.processes import here

TEXTS = ["first  text\n here", "", "日本語 " * 200, "x" * 5000, "half \ud800 of a pair", "word " * 39 + "words"]


def test_an_excerpt_is_the_beginning_cut_between_words() -> None:
    assert [excerpt_of(text) for text in TEXTS[:2]] == ["first text here", ""]
    for text in TEXTS:
        excerpt = excerpt_of(text)
        assert len(excerpt) <= LONGEST
        assert " ".join(text.split()).startswith(excerpt.removesuffix(CUT))
        assert excerpt.endswith(CUT) == (len(" ".join(text.split())) > LONGEST)
    assert excerpt_of(TEXTS[2]).endswith(f"日本語{CUT}"), "not inside a word"
    assert excerpt_of(TEXTS[3]) == "x" * (LONGEST - 1) + CUT, "there is no other place to cut"
    assert excerpt_of(" " * 2000 + "late") == CUT


def test_saved_and_opened(tmp_path: Path) -> None:
    ids = [f"id {number}" for number in range(6)]
    TrainingTexts.of(TEXTS, ids, np.array([0, 2, 4, 1])).save(tmp_path)
    opened = TrainingTexts.load(tmp_path, n_texts=4)
    assert opened is not None
    assert [opened.id_of(row) for row in range(4)] == ["id 0", "id 2", "id 4", "id 1"]
    assert [opened.excerpt(row) for row in (0, 1, 3)] == [excerpt_of(TEXTS[row]) for row in (0, 2, 1)]
    json.dumps(opened.excerpt(2)).encode("utf-8")
    assert opened.excerpt(2).startswith("half \ufffd")


def test_texts_and_ids_may_be_missing(tmp_path: Path) -> None:
    TrainingTexts.of(None, None, np.arange(3)).save(tmp_path)
    opened = TrainingTexts.load(tmp_path, n_texts=3)
    assert opened is not None
    assert (opened.id_of(2), opened.excerpt(2)) == (None, "")
    TrainingTexts.of(["", "", ""], None, np.arange(3)).save(tmp_path)
    opened = TrainingTexts.load(tmp_path, n_texts=3)
    assert opened is not None
    assert opened.excerpt(2) == ""
    (tmp_path / NAME).unlink()
    assert TrainingTexts.load(tmp_path, n_texts=3) is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("texts.ends", lambda a: a[::-1]),
        ("texts.ends", lambda a: a + 1),
        ("texts.ends", lambda a: a.astype(np.int32)),
        ("texts.ends", lambda a: a[:-1]),
        ("texts.ends", None),
        ("texts.ends", lambda a: np.array([0, 9999, 5, a[-1]])),
        ("texts.ends", lambda a: np.array([0, -5, 5, a[-1]])),
        ("texts.buffer", lambda a: a[:-1]),
        ("texts.buffer", lambda a: a.astype(np.int8)),
        ("ids.buffer", None),
        ("n_texts", lambda a: a + 1),
        ("n_texts", None),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    TrainingTexts.of(TEXTS, TEXTS, np.arange(3)).save(tmp_path)
    arrays = {key: np.array(array) for key, array in read_tensors(tmp_path / NAME)[0].items()}
    if change is None:
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    write_tensors(tmp_path / NAME, arrays)
    with pytest.raises(ModelError, match=rf"{NAME}: .*restore"):
        TrainingTexts.load(tmp_path, n_texts=3)


def test_bytes_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    TrainingTexts.of(["abc", "def"], None, np.arange(2)).save(tmp_path)
    arrays = {key: np.array(array) for key, array in read_tensors(tmp_path / NAME)[0].items()}
    arrays["texts.buffer"][4] = 0xFF
    write_tensors(tmp_path / NAME, arrays)
    opened = TrainingTexts.load(tmp_path, n_texts=2)
    assert opened is not None
    assert [opened.excerpt(row) for row in range(2)] == ["abc", "d\ufffdf"]


# -- in a model folder ------------------------------------------------------------------------------------------------


def kept(model: Model | Ensemble) -> TrainingTexts | None:
    assert model.first.reranker is not None
    return model.first.reranker.parts.texts


def test_a_saved_model_keeps_them(stacked_model: Model, tmp_path: Path) -> None:
    stacked_model.save(tmp_path / "copy")
    before, after = kept(stacked_model), kept(load(tmp_path / "copy", threads=2))
    assert before is not None
    assert after is not None
    assert [after.excerpt(row) for row in range(400)] == [before.excerpt(row) for row in range(400)]
    assert after.id_of(7) == before.id_of(7)


def test_members_of_an_ensemble_share_the_file(ensemble: Ensemble, ensemble_folder: Path) -> None:
    assert (ensemble_folder / "member-0" / NAME).samefile(ensemble_folder / "member-1" / NAME)
    first, second = (kept(member) for member in ensemble.members)
    assert first is not None
    assert first is second


def test_a_file_of_another_model_is_refused(stacked_model: Model, tmp_path: Path) -> None:
    stacked_model.save(tmp_path / "copy")
    TrainingTexts.of(TEXTS, None, np.arange(3)).save(tmp_path / "copy")
    with pytest.raises(ModelError, match=f"{NAME}: (has .* bytes, not the|does not fit)"):
        load_model(tmp_path / "copy")


def test_compact_keeps_them_unless_told_not_to(stacked_model: Model, stacked_folder: Path, tmp_path: Path) -> None:
    assert kept(compact(stacked_model, precision="int8")) is kept(stacked_model)
    done = here("compact", stacked_folder, "-o", tmp_path / "small", "--drop-texts")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "small" / NAME).exists()
    smaller = load(tmp_path / "small", threads=2)
    assert kept(smaller) is None
    content = b"".join(path.read_bytes() for path in (tmp_path / "small").rglob("*") if path.is_file())
    assert b"train-17" not in content, "no id of a training row is left"


def test_a_setting_leaves_them_out(stacked_folder: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    """It decides about this step alone: everything else of a run is kept."""
    import shutil

    from helpers.processes import STACKED

    shutil.copytree(stacked_folder.with_name("model.run"), tmp_path / "private.run")
    options = [f"--set={key}={value}" for key, value in {**STACKED, "knn.keep_texts": False}.items()]
    done = here("fit", tiny_dataset, "-o", tmp_path / "private", "--force", *options)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "private.run" / "log.jsonl").read_text().splitlines()
    before = len((stacked_folder.with_name("model.run") / "log.jsonl").read_text().splitlines())
    assert [json.loads(line).get("step") for line in log[before:] if "step" in line] == ["90-model"]
    assert not (tmp_path / "private" / NAME).exists()
    found = load(tmp_path / "private", threads=2).predict(["some text"], k=2, explain=True)
    assert found.explanations is not None
