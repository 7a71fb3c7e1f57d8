"""Each recipe on the shrunken copy of its benchmark: fit, evaluate, an ensemble; by the command line, as a user would.

What is overridden is what a shrunken run must: C, epochs, and the encoder, which is a tiny BERT with a vocabulary
learned from the texts of the copy. Everything else is as published: AdamW tables, accumulation, beta, kappa, K, lambda,
ELIAS++.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import transformers
from tokenizers import BertWordPieceTokenizer

from elias import Dataset, load_dataset
from elias.core.metrics import evaluate
from elias.core.predictions import PAD
from elias.core.propensity import PropensityModel
from elias.core.recipes import read_recipe
from elias.encoders.centroids import normalize_rows
from elias.encoders.svd import svd_embeddings
from helpers.processes import environment, here, sets

pytestmark = pytest.mark.slow

SHRUNKEN = Path(__file__).resolve().parents[1] / "benchmarks" / "shrunken.py"
ROWS = 1500
PATIENCE = 120  # seconds of a fit on one core
DIM = 64
STEPS = {"stage1": 60, "stage2": 120}  # of training, about: batches of the recipes have 64 to 1,024 rows
MORE = {"amazon-670k": 2.5}  # 2,045 labels, whose W_L steps every 10 batches and learns from what was retrieved alone
RECIPES = {
    "lf-amazontitles-131k": "lf-amazontitles-131k",
    "lf-amazontitles-131k-program": "lf-amazontitles-131k",
    "amazon-670k": "amazon-670k",
    "amazon-670k-program": "amazon-670k",
    "wikipedia-500k": "wikipedia-500k",
    "amazon-3m": "amazon-3m",
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shrunken") / "copies"
    command = [sys.executable, str(SHRUNKEN), str(folder), "--rows", str(ROWS)]
    subprocess.run(command, check=True, env=environment(), timeout=180)
    return folder


@pytest.fixture(scope="module")
def bert_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Dataset], Path]:
    """A tiny BERT for the texts of a dataset: 2 layers, 64 dimensions, random weights; made once per dataset."""
    made: dict[str, Path] = {}

    def make(data: Dataset) -> Path:
        if data.name in made:
            return made[data.name]
        folder = tmp_path_factory.mktemp(f"bert-{data.name}")
        tokenizer = BertWordPieceTokenizer(lowercase=True)
        tokenizer.train_from_iterator(data.train.texts, vocab_size=3000, min_frequency=2, show_progress=False)
        tokenizer.save(str(folder / "tokenizer.json"))
        # Not pretrained, so what pretraining would give it comes from an SVD: words of like texts have like vectors.
        # Layers start with larger weights than BERT's, so that [CLS] differs between texts from the first step.
        config = transformers.BertConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=2 * DIM, max_position_embeddings=128, initializer_range=0.2,
        )  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = transformers.BertModel(config)
        model.embeddings.word_embeddings.weight.data = word_vectors(tokenizer, data)
        model.embeddings.position_embeddings.weight.data *= 0.1
        model.save_pretrained(folder)
        made[data.name] = folder
        return folder

    return make


def word_vectors(tokenizer: BertWordPieceTokenizer, data: Dataset) -> torch.Tensor:
    """Of every token, as long as those that BERT starts from."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(list(data.train.texts or ()))]
    rows = np.repeat(np.arange(len(ids)), [len(row) for row in ids])
    shape = len(ids), tokenizer.get_vocab_size()
    counts = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, [n for row in ids for n in row])), shape=shape)
    rarity = np.log((1 + len(ids)) / (1 + np.bincount(counts.indices, minlength=shape[1]))).astype(np.float32)
    vectors = svd_embeddings(normalize_rows(sp.csr_matrix(counts.multiply(rarity))), DIM, seed=0, threads=1)
    return torch.from_numpy(0.2 * DIM**0.5 * normalize_rows(vectors))


def overrides(recipe: str, data: Dataset, bert: Path) -> dict[str, Any]:
    """C by the paper's rule, 2^ceil(log2(L / 100)); half of the rows are held out, as many as `split` allows."""
    clusters, batch_size = 2 ** math.ceil(math.log2(len(data.labels) / 100)), read_recipe(recipe)
    epochs = {
        f"{stage}.epochs": math.ceil(
            MORE.get(recipe, 1) * steps / math.ceil(ROWS / 2 / batch_size[f"{stage}.batch_size"])
        )
        for stage, steps in STEPS.items()
    }
    encoder = {"encoder.model": str(bert), "encoder.max_length": 32}
    return {**epochs, **encoder, "clustering.clusters": clusters}


def most_frequent(data: Dataset) -> dict[str, float]:
    """The same labels for every test row."""
    assert data.test is not None
    counts, rows = data.training_counts()
    frequent = np.full((len(data.test), 100), PAD, dtype=np.int64)
    frequent[:] = np.argsort(-counts, kind="stable")[:100]
    return evaluate(frequent, data.test.labels, PropensityModel(counts, rows)).values


def measured(model: Path, copy: Path) -> dict[str, float]:
    done = here("evaluate", model, copy, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_on_its_copy(
    recipe: str, copies: Path, bert_of: Callable[[Dataset], Path], tmp_path: Path
) -> None:
    copy = copies / RECIPES[recipe]
    data = load_dataset(copy)
    changes, started = overrides(recipe, data, bert_of(data)), time.process_time()
    options = ("-o", tmp_path / "model", "--recipe", recipe, "--threads", "1")
    done = here("fit", copy, *options, *sets(changes))
    assert done.returncode == 0, done.stderr
    seconds = time.process_time() - started
    assert "(a rough estimate)" in done.stderr
    values, floor = measured(tmp_path / "model", copy), most_frequent(data)
    names = ("P@1", "P@5", "PSP@5", "R@100")
    figures = [{name: round(found[name], 1) for name in names} for found in (values, floor)]
    print(f"\n{recipe}: {seconds:.0f} s, {figures[0]}, most frequent labels: {figures[1]}")
    for metric in ("P@1", "P@5", "PSP@5"):
        assert values[metric] > 1.5 * floor[metric], metric
    assert seconds < PATIENCE
    used = json.loads((tmp_path / "model" / "config.json").read_text())["settings"]
    assert (used["ranking"]["kind"], used["run"]["recipe"]) == ("published", recipe)
    assert used["stage2"]["epochs"] == changes["stage2.epochs"]


def test_three_members(copies: Path, bert_of: Callable[[Dataset], Path], tmp_path: Path) -> None:
    copy = copies / "lf-amazontitles-131k"
    data = load_dataset(copy)
    changes = overrides(copy.name, data, bert_of(data))
    options = ("-o", tmp_path / "model", "--recipe", copy.name, "--members", "3", "--threads", "1")
    done = here("fit", copy, *options, *sets(changes))
    assert done.returncode == 0, done.stderr
    values, floor = measured(tmp_path / "model", copy), most_frequent(data)
    assert values["P@1"] > 1.5 * floor["P@1"]
