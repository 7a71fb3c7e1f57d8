"""Models in pickles, copies and other processes: by their folder, or by the bytes of their files."""

from __future__ import annotations

import copy
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias import Ensemble, Model
from elias.core.errors import ModelError
from helpers.processes import content, environment

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "models"
TEXTS = ["library for python", "pdf viewer for gnome", "a game of chess", ""]
BY_FOLDER = 4_000  # bytes: names and times of some twenty files; the files have hundreds of thousands
Predictor = Model | Ensemble


@pytest.fixture(params=["stacked", "ensemble", "network"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model folder of the test's own."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / request.param))


def same(one: Predictor, other: Predictor) -> None:
    """Another object with the same answers."""
    assert one is not other
    assert type(one) is type(other)
    ours, theirs = one.predict(TEXTS, k=7, explain=True), other.predict(TEXTS, k=7, explain=True)
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    assert one.labels.ids == other.labels.ids


def by_folder(model: Predictor) -> bool:
    return len(pickle.dumps(model)) < BY_FOLDER


def test_a_loaded_model_is_pickled_by_its_folder(folder: Path) -> None:
    model = elias.load(folder, threads=1)
    assert by_folder(model)
    back = pickle.loads(pickle.dumps(model))
    same(model, back)
    assert back.network.threads == 1
    assert back.home == replace(back.home, folder=folder)
    assert pickle.loads(pickle.dumps(elias.load(folder, kernels=False))).all_members()[0].use_kernels is False


def test_a_folder_that_is_gone_or_changed_is_not_used(folder: Path) -> None:
    model = elias.load(folder, threads=2)
    reference = pickle.dumps(model)
    labels = next(folder.rglob("labels.tsv"))
    labels.write_bytes(labels.read_bytes() + b"\n")
    assert not by_folder(model)
    with pytest.raises(ModelError, match="its files have changed since"):
        pickle.loads(reference)
    shutil.rmtree(folder)
    packed = pickle.dumps(model)
    same(model, pickle.loads(packed))
    with pytest.raises(ModelError, match="is not there"):
        pickle.loads(reference)
    same(model, pickle.loads(pickle.dumps(pickle.loads(packed))))  # a model that came from bytes goes by bytes


def test_a_saved_model_is_pickled_by_its_new_folder(folder: Path, tmp_path: Path) -> None:
    model = elias.load(folder, threads=2)
    shutil.rmtree(folder)
    assert not by_folder(model)
    model.save(tmp_path / "saved")
    assert by_folder(model)
    same(model, pickle.loads(pickle.dumps(model)))
    model.save(tmp_path / "another")
    shutil.rmtree(tmp_path / "another")
    assert by_folder(model)  # the first is still there


def test_the_bytes_are_those_of_the_files(folder: Path) -> None:
    from elias.model.serialization import packed

    model = elias.load(folder, threads=2)
    model.save(folder.with_name("saved"))
    assert packed(model) == content(folder.with_name("saved"))


def test_a_changed_copy_does_not_go_by_the_folder_of_the_first() -> None:
    model = elias.load(GOLDEN / "stacked", threads=2)
    assert isinstance(model, Model)
    alone = replace(model, reranker=None)
    assert not by_folder(alone)
    assert pickle.loads(pickle.dumps(alone)).reranker is None
    model.reranker = None
    assert not by_folder(model)


def test_members_of_an_ensemble_from_bytes_share_their_ranking_parts() -> None:
    loaded = elias.load(GOLDEN / "ensemble", threads=2)
    assert isinstance(loaded, Ensemble)
    made = Ensemble(loaded.members)  # without a folder of its own
    packed = pickle.dumps(made)
    back = pickle.loads(packed)
    same(made, back)
    assert back.members[0].reranker.parts is back.members[1].reranker.parts
    assert len(packed) < 0.8 * sum(map(len, content(GOLDEN / "ensemble").values()))  # what they share is there once


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_answer_alike(copied: Callable[[Any], Any], folder: Path) -> None:
    model = elias.load(folder, threads=2)
    same(model, copied(model))


def test_a_copy_shares_and_a_deep_copy_does_not() -> None:
    model = elias.load(GOLDEN / "stacked", threads=2)
    assert copy.copy(model).network is model.network
    deep = copy.deepcopy(model)
    assert deep.network is not model.network
    deep.network.classifier_biases.values += 1
    same(model, elias.load(GOLDEN / "stacked", threads=2))


# -- other processes --------------------------------------------------------------------------------------------------


def named(model: Predictor, text: str) -> list[list[tuple[str, float]]]:
    return model.predict([text] * 8, k=3).named()


SCRIPT = """
import multiprocessing, os, warnings
import elias
def named(job):
    model, text = job
    return model.predict([text] * 40, k=3).named()
if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and later, for a fork beside threads
    model = elias.load(FOLDER, threads=2)
    jobs = [(model, text) for text in TEXTS]
    expected = [named(job) for job in jobs]
    child = os.fork()  # which inherits the model: nothing is pickled
    if child == 0:
        os._exit(0 if [named(job) for job in jobs] == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map_async(named, jobs).get(60) == expected
        print(method)
"""


def test_processes_that_fork_and_spawn_after_a_prediction(tmp_path: Path) -> None:
    """From a process of its own, where the threads of the kernels run already: that of the tests has others, too."""
    script, folder = tmp_path / "script.py", GOLDEN / "ensemble"
    script.write_text(SCRIPT.replace("FOLDER", repr(str(folder))).replace("TEXTS", repr(TEXTS)), encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment(), timeout=90)
    assert (done.returncode, done.stdout) == (0, "fork\nspawn\n"), done.stderr


@pytest.mark.slow  # tests/test_python_guide.py has the quick one
def test_joblib_workers_answer_alike() -> None:
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    model = elias.load(GOLDEN / "stacked", threads=1)
    expected = [named(model, text) for text in TEXTS]
    try:
        found = Parallel(n_jobs=2)(delayed(elias.Model.predict)(model, [text] * 8, 3) for text in TEXTS)
    finally:
        get_reusable_executor().shutdown()
    assert [one.named() for one in found] == expected


def test_predictions_come_back_from_workers() -> None:
    found = elias.load(GOLDEN / "stacked", threads=1).predict(TEXTS, k=3)
    back = pickle.loads(pickle.dumps(found))
    assert back.named() == found.named()
