"""A few hundred damaged models: each is refused in one line, or answers as it did; no crash, no traceback, no hang.

`python tests/attacks/run.py --models 10000` is the long version; `make test-slow` runs thousands.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elias
from attacks.bases import GOLDEN, MODELS, NARROW, TEXTS, make_transformer_models
from attacks.mutators import read_arrays, write_arrays
from attacks.run import cases, is_failure, run_cases
from elias.cli import main
from elias.core.errors import ModelError
from elias.core.files import write_tensors
from elias.core.tokenize import Vocabulary
from elias.encoders.tfidf import TfIdf
from elias.network.storage import load_index
from helpers.model_files import reseal

TARGETS = [*MODELS, *NARROW]


def failures(count: int, seed: int, folder: Path, targets: Sequence[str] = TARGETS) -> list[str]:
    found = run_cases(list(cases("models", targets, count, seed)), folder)
    assert len(found) == count
    return [f"{one['target']} {one['seed']}: {one['did']}: {one['said'][-300:]}" for one in found if is_failure(one)]


def test_damaged_models_are_refused_or_answer_as_they_did(tmp_path: Path) -> None:
    assert failures(200, 0, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_damaged_models(tmp_path: Path) -> None:
    assert failures(int(os.environ.get("ATTACKS", "3000")), 1, tmp_path) == []


@pytest.mark.slow
def test_damaged_models_with_transformers(tmp_path: Path) -> None:
    assert failures(300, 0, tmp_path, make_transformer_models(tmp_path / "models")) == []


# -- single cases -----------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "stacked", tmp_path / "model"))


def change_json(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_missing_ranker_is_named(copy: Path) -> None:
    (copy / "ranking.json").unlink()
    with pytest.raises(ModelError, match=r"ranking\.json: the file is missing"):
        elias.load(copy)


def test_a_ranker_of_another_model_is_named(copy: Path) -> None:
    shutil.copyfile(GOLDEN / "product" / "published.json", copy / "published.json")
    with pytest.raises(ModelError, match=r"published\.json: config\.json does not list it"):
        elias.load(copy)


def test_a_beam_of_no_cluster_is_refused(copy: Path) -> None:
    """It crashed the process."""
    change_json(copy / "network.json", lambda content: content["search"].update(beam_size=0))  # type: ignore[attr-defined]
    reseal(copy)
    with pytest.raises(ModelError, match=r'network\.json: "search\.beam_size" is 0, but must be a whole number from 1'):
        elias.load(copy)


def test_an_ensemble_of_two_vocabularies_is_refused() -> None:
    """A second member with a larger vocabulary crashed the process."""
    second = elias.load(GOLDEN / "stacked")
    words = second.vectorizer
    fewer = TfIdf(Vocabulary(words.words.words[1:]), words.idf[1:], min_df=1, max_words=9999, n_texts=words.n_texts)
    with pytest.raises(ModelError, match="member 1 has another vocabulary than member 0"):
        elias.Ensemble([replace(second, vectorizer=fewer), second])


@pytest.mark.parametrize("name", ["stacked", "ensemble"])
def test_a_model_that_is_gone_has_closed_its_files(name: str) -> None:
    """At once, not when the garbage collector runs: no part of a model refers to itself."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        model = elias.load(GOLDEN / name, threads=2)
        model.predict(TEXTS, k=3, explain=True)
        files = len(list((GOLDEN / name).rglob("*.safetensors"))) + len(list((GOLDEN / name).rglob("*.npy")))
        assert len(os.listdir("/proc/self/fd")) <= before + files
        del model
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()


def test_an_id_that_two_labels_have_is_refused(copy: Path) -> None:
    lines = (copy / "labels.tsv").read_text().split("\n")
    first = lines[1].split("\t")[0]
    lines[5] = "\t".join([first, *lines[5].split("\t")[1:]])
    (copy / "labels.tsv").write_text("\n".join(lines))
    reseal(copy)
    with pytest.raises(ModelError, match=r"labels\.tsv: lines 2 and 6 have the same id"):
        elias.load(copy)


def test_a_setting_that_was_edited_is_named(copy: Path) -> None:
    change_json(copy / "config.json", lambda content: content["dataset"].update(exclude_own_id=False))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"config\.json: its checksum is another one"):
        elias.load(copy)


def test_large_files_are_verified_on_request(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("elias.core.checksums.SMALL", 1000)
    path = copy / "training_texts.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))
    elias.load(copy)
    with pytest.raises(ModelError, match=r"training_texts\.safetensors: its content is not what config\.json recorded"):
        elias.load(copy, verify=True)
    assert main(["verify", str(copy)]) == 5
    assert "training_texts.safetensors" in capsys.readouterr().err
    assert main(["verify", str(copy), str(GOLDEN / "stacked"), str(copy / "none")]) == 5
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{GOLDEN / 'stacked'}: "), "a broken model does not hide the others"
    assert [line.startswith(f"elias: {copy}") for line in printed.err.splitlines()] == [True, True]
    assert main(["verify", str(GOLDEN / "stacked"), str(GOLDEN / "ensemble")]) == 0
    assert "18 files" in capsys.readouterr().out


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_numbers_that_are_not_finite_are_named(copy: Path, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a small array when the model is opened, in a large one by `verify`, and by the answer at the latest."""
    monkeypatch.setattr("elias.core.schema.SMALL", small)
    arrays, about = read_arrays(copy / "inverted_index.safetensors")
    dtype, shape, body = arrays["postings.weights"]
    arrays["postings.weights"] = dtype, shape, np.full(len(body) // 4, np.nan, np.float32).tobytes()
    write_arrays(copy / "inverted_index.safetensors", arrays, about)
    reseal(copy)
    named = r'inverted_index\.safetensors: "postings\.weights" has a number that is not finite at \[0\]'
    with pytest.raises(ModelError, match=named):
        elias.load(copy, verify=True)
    if small:
        with pytest.raises(ModelError, match=named):
            elias.load(copy)
    else:
        with pytest.raises(ModelError, match="a score that is not a finite number"):
            elias.load(copy).predict("python library")


@pytest.mark.parametrize(("clusters", "labels"), [(0, 4), (2, 0)])
def test_an_index_of_nothing_is_refused(clusters: int, labels: int, tmp_path: Path) -> None:
    """The kernel of the beam reads the best cluster, and the search the best label: there must be one."""
    path = tmp_path / "index.safetensors"
    arrays = {"indptr": np.zeros(clusters + 1, np.int64), "labels": np.zeros(0, np.int32)}
    write_tensors(path, arrays, {"beta": "1.0", "n_labels": str(labels)})
    named = rf"index\.safetensors: an index of {clusters} clusters and {labels} labels"
    with pytest.raises(ModelError, match=named):
        load_index(path)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(copy: Path) -> None:
    for name in ("config.json", "labels.tsv", "index.safetensors", "encoder/encoder.json"):
        (copy / name).unlink()
        os.mkfifo(copy / name)
        with pytest.raises(ModelError, match=r"not a file but a"):
            elias.load(copy)
        (copy / name).unlink()
        shutil.copyfile(GOLDEN / "stacked" / name, copy / name)
    elias.load(copy)


def test_one_case_can_be_repeated() -> None:
    script = Path(__file__).with_name("run.py")
    done = subprocess.run([sys.executable, str(script), "--datasets", "2"], capture_output=True, text=True, timeout=300)
    assert "| datasets | 2 |" in done.stdout, done.stderr
