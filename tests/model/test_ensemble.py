"""Several models as one: means by hand, a fit of two members through the command line, interrupted, shared, refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elias
from attacks.bases import GOLDEN
from elias.core.checksums import sealed
from elias.core.defaults import DataSize, resolve
from elias.core.errors import InputError, ModelError, RunError
from elias.core.files import same_files
from elias.core.predictions import Predictions
from elias.core.settings import Settings, noise_seed
from elias.dataset.labels import LabelSet
from elias.model.ensemble import NAME, Ensemble, averaged
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import PART_FILES, load_model
from elias.pipeline import fit as fitting
from elias.pipeline.fit import fit_to
from helpers.model_files import reseal
from helpers.processes import SMALL, STACKED, content, here, one_line, sets, start, wait_until

SHARED = ("05-tokens", "10-features", "60-ranking", "80-ranking", "82-texts")  # steps that need no clustering

# -- the mean ---------------------------------------------------------------------------------------------------------


def random_predictions(rng: np.random.Generator, rows: int, width: int, member: int) -> Predictions:
    """Best first, each label once, some rows with fewer; scores are quarters, so that ties are many."""
    labels = np.array([rng.permutation(9)[:width] for _ in range(rows)], dtype=np.int32).reshape(rows, width)
    scores = -np.sort(-rng.integers(1, 5, size=(rows, width)) / 4, axis=1)
    missing = np.arange(width) >= rng.integers(0, width + 1, size=(rows, 1))
    labels[missing], scores[missing] = -1, 0
    parts = {"cluster": np.where(missing, -1, labels * 10 + member).astype(np.int32), "classifier": scores / 2}
    return Predictions(labels=labels, scores=scores.astype(np.float32), parts=parts)


@given(
    seed=st.integers(0, 10_000), rows=st.integers(0, 4), width=st.integers(1, 8), members=st.integers(1, 4),
    k=st.integers(1, 12),
)  # fmt: skip
def test_the_mean_is_that_of_dictionaries(seed: int, rows: int, width: int, members: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    found = [random_predictions(rng, rows, width, member) for member in range(members)]
    mean = averaged(found, k)
    assert mean.labels.shape == mean.scores.shape == (rows, k)
    assert (mean.labels.dtype, mean.scores.dtype) == (np.int32, np.float32)
    assert mean.parts is not None
    for row in range(rows):
        total: dict[int, float] = {}
        first: dict[int, tuple[float, int]] = {}  # score and number of the first member that predicts it
        for member, one in enumerate(found):
            for label, score in zip(one.labels[row].tolist(), one.scores[row].tolist(), strict=True):
                if label >= 0:
                    total[label] = total.get(label, 0.0) + score / members
                    first.setdefault(label, (score, member))
        expected = sorted(total, key=lambda label: (-total[label], label))[:k]
        n = len(expected)
        assert mean.labels[row].tolist() == expected + [-1] * (k - n)
        np.testing.assert_allclose(mean.scores[row], [*(total[label] for label in expected), *[0] * (k - n)], rtol=1e-6)
        member_of = [first[label][1] for label in expected]
        assert mean.parts["member"][row].tolist() == member_of + [-1] * (k - n)
        clusters = [label * 10 + member for label, member in zip(expected, member_of, strict=True)]
        assert mean.parts["cluster"][row].tolist() == clusters + [-1] * (k - n)
        np.testing.assert_allclose(mean.parts["classifier"][row, :n], [first[label][0] / 2 for label in expected])
        assert (mean.parts["classifier"][row, n:] == 0).all()


def test_below_a_threshold_there_is_no_member() -> None:
    mean = averaged([random_predictions(np.random.default_rng(0), 3, 5, member) for member in range(2)], 5)
    above = mean.above(0.6)
    gone = above.labels < 0
    assert gone.any()
    assert above.parts is not None
    assert (above.parts["member"][gone] == -1).all()
    assert (above.parts["member"][~gone] >= 0).all()


# -- a model of models ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts(tiny_dataset: Path) -> list[str]:
    test = elias.load_dataset(tiny_dataset).test
    assert test is not None
    return list(test.texts or [])


def test_it_answers_with_the_mean_of_its_members(ensemble: Ensemble, texts: list[str]) -> None:
    assert len(ensemble.members) == 2
    first, second = ([dict(row) for row in member.predict(texts, k=60).named()] for member in ensemble.members)
    assert first != second, "members differ"
    for row, items in enumerate(ensemble.predict(texts, k=7).named()):
        assert len(items) == 7
        for name, score in items:
            assert score == pytest.approx((first[row].get(name, 0) + second[row].get(name, 0)) / 2, rel=1e-5)
    assert "2" in repr(ensemble)


def test_every_option_of_a_model(ensemble: Ensemble, texts: list[str]) -> None:
    names = ensemble.labels.ids
    assert ensemble.gives_probabilities
    found = ensemble.predict(iter(texts[:5]), k=3)  # an iterator is read once, and every member needs it
    np.testing.assert_array_equal(found.labels, ensemble.predict(texts[:5], k=3).labels)
    assert ensemble.predict(texts[0], k=2).labels.tolist() == [found.labels[0, :2].tolist()]
    sure = ensemble.predict(texts, k=5, threshold=0.5, explain=True)
    assert (sure.scores[sure.labels >= 0] >= 0.5).all()
    assert sure.parts is not None
    np.testing.assert_array_equal(sure.parts["member"] >= 0, sure.labels >= 0)
    candidates = [names[row % 50 : row % 50 + 4] for row in range(len(texts))]
    chosen = ensemble.predict(texts, k=9, candidates=candidates, block=names[:3]).named()
    for row, items in enumerate(chosen):
        assert {name for name, _ in items} == set(candidates[row]) - set(names[:3])
    with pytest.raises(InputError, match="threshold=2"):
        ensemble.predict(texts, threshold=2)
    with pytest.raises(InputError, match="k=0"):
        ensemble.predict(texts, k=0)


def test_it_is_at_least_about_as_good_as_its_members(ensemble: Ensemble, tiny_dataset: Path) -> None:
    data = elias.load_dataset(tiny_dataset)
    together = evaluate_model(ensemble, data).metrics
    alone = [evaluate_model(member, data).metrics for member in ensemble.members]
    assert together["P@1"] >= min(one["P@1"] for one in alone) - 1
    assert together["P@1"] > 60


def test_members_differ_where_they_should(ensemble_folder: Path, stacked_folder: Path) -> None:
    """Member 0 is the model that a fit without members makes; what needs no clustering is one file for all."""
    runs = ensemble_folder.with_name("both.run")
    alone, first, second = (
        content(folder, "*.safetensors")
        for folder in (stacked_folder, ensemble_folder / "member-0", ensemble_folder / "member-1")
    )
    assert first == alone
    assert first["index.safetensors"] != second["index.safetensors"]
    for name in PART_FILES:
        assert os.path.samefile(ensemble_folder / "member-0" / name, ensemble_folder / "member-1" / name)
    for step in SHARED:
        ours = [path for path in (runs / "member-0" / step).rglob("*") if path.is_file()]
        assert ours
        for path in ours:
            assert path.samefile(runs / "member-1" / path.relative_to(runs / "member-0"))
    log = [json.loads(line) for line in (runs / "member-1" / "log.jsonl").read_text().splitlines()]
    built = {line["step"] for line in log if "step" in line}
    assert built == {
        "20-clusters",
        "30-stage1",
        "40-adjacency",
        "50-stage2",
        "65-held-out",
        "70-score-model",
        "85-quality",
        "90-model",
    }
    assert noise_seed(Settings()) == 0
    assert noise_seed(Settings().updated({"run.member": 1})) != 0


def test_saved_and_loaded(ensemble: Ensemble, texts: list[str], tmp_path: Path) -> None:
    ensemble.save(tmp_path / "copy")
    loaded = elias.load(tmp_path / "copy", threads=2)
    assert isinstance(loaded, Ensemble)
    before, after = ensemble.predict(texts, k=5), loaded.predict(texts, k=5)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)
    with pytest.raises(ModelError, match="exists; remove it first"):
        ensemble.save(tmp_path / "copy")


def test_members_of_other_labels_are_refused(stacked_model: Model, ensemble: Ensemble) -> None:
    other = replace(stacked_model, labels=LabelSet([*stacked_model.labels.ids[:-1], "another"]))
    with pytest.raises(ModelError, match="member 1 has other labels than member 0; fit them on the same data"):
        Ensemble([ensemble.members[0], other])
    with pytest.raises(InputError, match="at least one member"):
        Ensemble([])


def test_a_member_without_calibration_takes_the_probabilities_away(stacked_model: Model) -> None:
    mixed = Ensemble([stacked_model, replace(stacked_model, reranker=None)])
    assert not mixed.gives_probabilities
    with pytest.raises(InputError, match="not probabilities"):
        mixed.predict(["a"], threshold=0.5)


@pytest.mark.parametrize("first", [0, 1])
def test_parts_of_members_with_other_rankers(first: int) -> None:
    """A part that a member does not have is 0; with the richer member first it was a KeyError."""
    ensemble = elias.load(GOLDEN / "tree", threads=2)
    assert isinstance(ensemble, Ensemble)
    calibrated = ensemble.members[0]
    members = [calibrated, replace(calibrated, reranker=None)]
    found = Ensemble([members[first], members[1 - first]]).predict(["python library"], k=3, explain=True)
    alone = calibrated.predict(["python library"], k=100, explain=True)
    assert found.parts is not None
    assert alone.parts is not None
    for rank, label in enumerate(found.labels[0]):
        from_first = found.parts["member"][0, rank] == first  # `first`: the number of the richer member
        wanted = alone.parts["tree"][0, alone.labels[0] == label].tolist() if from_first else [0.0]
        assert found.parts["tree"][0, rank].tolist() in wanted


def test_members_read_the_same_words(stacked_model: Model, tiny_model: Model) -> None:
    """Word numbers of one vocabulary would index the tables of another."""
    with pytest.raises(ModelError, match="member 1 has another vocabulary than member 0"):
        Ensemble([stacked_model, tiny_model])


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not readable as JSON"),
        ("[]", "not an object"),
        ('{"format_version": 1}', 'has no "members"'),
        ('{"format_version": 2, "members": ["member-0"]}', "this elias reads 1"),
        ('{"format_version": 1, "members": []}', "members must be different names"),
        ('{"format_version": 1, "members": "member-0"}', "must be a list of texts"),
        ('{"format_version": 1, "members": ["../member-0"]}', "members must be different names"),
        ('{"format_version": 1, "members": [0]}', "must be a list of texts"),
        ('{"format_version": 1, "members": ["member-0", "member-7"]}', "member-7, which is not there; restore it"),
    ],
)
def test_a_damaged_list_of_members_is_refused(text: str, says: str, ensemble_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "member-0").symlink_to(ensemble_folder / "member-0")
    (tmp_path / NAME).write_text(text)
    if text.startswith('{"format_version": 1, "members"'):
        with pytest.raises(ModelError, match=f"{NAME}: its checksum is another one"):
            elias.load(tmp_path)
        more = {"quality": None, "configs": {"member-0/config.json": {}}}
        (tmp_path / NAME).write_text(json.dumps(sealed({**json.loads(text), **more})))
    with pytest.raises(ModelError, match=f"{NAME}.*{says}"):
        elias.load(tmp_path)


# -- the command line -------------------------------------------------------------------------------------------------


def test_interrupted_and_gone_on(ensemble_folder: Path, tiny_dataset: Path, tmp_path: Path, texts: list[str]) -> None:
    """Killed in its second member, the same command goes on there and makes the same files."""
    output, run = tmp_path / "both", tmp_path / "both.run"
    arguments = ("fit", tiny_dataset, "-o", output, "--members", "2", *sets(STACKED))
    process = start(*arguments)
    wait_until((run / "member-1" / "20-clusters" / "done.json").exists, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    finished = (run / "member-0" / "90-model" / "done.json").read_bytes()
    done = here(*arguments)
    assert done.returncode == 0, done.stderr
    assert "member 1 of 2" in done.stderr
    assert (run / "member-0" / "90-model" / "done.json").read_bytes() == finished, "the first member was not touched"
    for pattern in ("*.safetensors", "score_model.json", NAME):
        assert content(output, pattern) == content(ensemble_folder, pattern)
    done = here("predict", output, texts[0], "-k", "3", "--explain", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    assert [set(label) >= {"label", "score", "member", "ranker"} for label in json.loads(done.stdout)["labels"]] == [
        True
    ] * 3


def test_commands_that_know_and_that_do_not_know_ensembles(
    ensemble_folder: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    done = here("evaluate", ensemble_folder, tiny_dataset)
    assert done.returncode == 0, done.stderr
    assert "nDCG" in done.stdout
    member = str(ensemble_folder / "member-0")
    assert "members" in here("inspect", ensemble_folder).stdout
    inside = ("inspect", ensemble_folder, "--label", "label-07")
    for arguments in (inside, ("compact", ensemble_folder, "-o", tmp_path / "small")):
        done = here(*arguments)
        assert done.returncode != 0
        assert one_line(done.stderr)
        assert f"is an ensemble; {arguments[0]} one of its members, e.g. {member}" in done.stderr
    assert not (tmp_path / "small").exists()


def test_fit_refuses(tiny_dataset: Path, ensemble_folder: Path, tmp_path: Path) -> None:
    data, settings = elias.load_dataset(tiny_dataset), Settings().updated(SMALL)
    with pytest.raises(InputError, match="members=0: an ensemble has at least one member"):
        fit_to(data, tmp_path / "none", settings=settings, members=0)
    with pytest.raises(RunError, match="exists; choose another -o, or pass --force"):
        fit_to(data, ensemble_folder, settings=settings, members=2)


def test_new_settings_are_shared_anew(tiny_dataset: Path, tmp_path: Path) -> None:
    """With --force and other settings no member keeps steps of the old ones, and both still share."""
    data = elias.load_dataset(tiny_dataset)
    short = {**SMALL, "stage1.epochs": 1, "stage2.epochs": 0, "clustering.clusters": 2}
    fit_to(data, tmp_path / "both", settings=Settings().updated(short), members=2)
    before = (tmp_path / "both.run" / "member-1" / "10-features" / "done.json").read_bytes()
    changed = Settings().updated({**short, "encoder.dim": 8})
    made = fit_to(data, tmp_path / "both", settings=changed, members=2, force=True)
    runs = tmp_path / "both.run"
    assert (runs / "member-1" / "10-features" / "done.json").read_bytes() != before
    for name in ("done.json", "split.safetensors"):
        assert os.path.samefile(runs / "member-0" / "10-features" / name, runs / "member-1" / "10-features" / name)
    assert load_model(made / "member-1").network.encoder.dim == 8
    assert isinstance(elias.load(made), Ensemble)


# -- words read once --------------------------------------------------------------------------------------------------


def test_members_that_share_their_words_read_them_once(ensemble: Ensemble, ensemble_folder: Path) -> None:
    """The same answer as member by member, to a few texts and to many, with labels left out, with parts."""
    first, second = ensemble.members
    assert first.reranker is not None
    assert second.reranker is not None
    assert first.reranker.parts is second.reranker.parts
    assert first.vectorizer is second.vectorizer
    assert [len(group) for group in ensemble.groups()] == [2]
    apart = Ensemble([load_model(ensemble_folder / name, threads=2) for name in ("member-0", "member-1")])
    assert [len(group) for group in apart.groups()] == [1, 1]
    names = ensemble.labels.ids
    texts = ["babipo nazadi vunili", "", "xylophone", "tarizi vafonu tarizi", *["muruga dubeda noruno"] * 6]
    for count in (1, 3, 10):
        for block in (None, names[:9], names):
            ours = ensemble.predict(texts[:count], k=7, block=block, explain=True)
            theirs = apart.predict(texts[:count], k=7, block=block, explain=True)
            np.testing.assert_array_equal(ours.labels, theirs.labels)
            np.testing.assert_allclose(ours.scores, theirs.scores, rtol=0, atol=1e-6)
            assert ours.parts is not None
            assert theirs.parts is not None
            for name, values in theirs.parts.items():
                np.testing.assert_allclose(ours.parts[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    with pytest.raises(InputError, match="1 ids for 2 inputs"):
        ensemble.predict(texts[:2], ids=["one"])


def test_files_that_differ_are_not_shared(ensemble_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(ensemble_folder, tmp_path / "both")
    first, second = tmp_path / "both" / "member-0", tmp_path / "both" / "member-1"
    assert same_files(first, second, *PART_FILES)
    assert not same_files(first, second, "not there")
    changed = bytearray((second / "linear_ranker.safetensors").read_bytes())
    changed[-1] ^= 1
    (second / "linear_ranker.safetensors").unlink()  # not through a hard link
    (second / "linear_ranker.safetensors").write_bytes(bytes(changed))
    assert not same_files(first, second, *PART_FILES)
    with pytest.raises(ModelError, match=r"member-1/linear_ranker.safetensors: its content is not what"):
        elias.load(tmp_path / "both")
    reseal(tmp_path / "both")
    loaded = elias.load(tmp_path / "both", threads=2)
    assert isinstance(loaded, Ensemble)
    assert [len(group) for group in loaded.groups()] == [1, 1]


@pytest.mark.slow
def test_members_have_the_settings_of_the_first(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ensemble that was begun when defaults were others ends as it began."""
    data, folder = elias.load_dataset(tiny_dataset), tmp_path / "run"
    asked = Settings().updated(SMALL)
    elias.fit(data, settings=asked, run_dir=folder, members=2)
    shutil.rmtree(folder / "member-1")

    def resolved_anew(settings: Settings, size: DataSize) -> Settings:
        return resolve(settings, size).updated({"index.beam_size": 7})

    monkeypatch.setattr(fitting, "resolve", resolved_anew)
    elias.fit(data, settings=asked, run_dir=folder, members=2)
    first, second = (json.loads((folder / f"member-{i}" / "settings.json").read_text()) for i in range(2))
    assert first["resolved"]["run"].pop("member") == 0
    assert second["resolved"]["run"].pop("member") == 1
    assert second["resolved"] == first["resolved"]
