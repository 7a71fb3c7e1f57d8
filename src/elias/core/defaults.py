"""Default settings that follow from the size of the data, by the same rule for every dataset; and the choice in words.

In: settings in which None means "chosen for me", and the numbers of the dataset (`DataSize`). Out: settings without
None. The paper's letters: C clusters, L labels, kappa edges per cluster, b beam size, K shortlist size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .errors import SettingsError
from .settings import NETWORK_ALONE, ONE_VERSUS_ALL, PUBLISHED, STACKED, ScoreModelSettings, Settings, StageSettings

MOST_VALIDATION = 4000  # rows, as in the authors' program
MOST_HELD_OUT = 8000  # rows of each fold
MOST_TREE = 5000  # calibration rows of the published ranker, as in the paper
FEWEST = 100  # calibration rows to fit a final score on
FOLDS = 2
FOLDS_OF_FEW = ((10_000, 5), (50_000, 3))  # (pairs at most, folds), up to SMALL rows
MOST_FOLDED = 100_000  # training rows from which one split is enough
DIM, DIM_OF_STACKED = 512, 256  # d; a stacked ranker loses nothing with less
UNITS, ROWS_PER_UNIT = 32, 60  # hidden units of the final score at most; calibration rows of all folds per unit
PASSES, STEPS, BATCH = 40, 2000, 64  # at least so many passes over the calibration rows, and steps of BATCH rows
CONTINUED = 3  # epochs of stage 2 with all rows, from the network of a fold; beyond SMALL rows
SMALL = 10_000  # training rows up to which a fold is a third or a fifth; a validation file shortens training too
SAMPLED = 32  # wrong candidates per text and step of the score model


@dataclass(frozen=True)
class DataSize:
    """The numbers of a dataset from which settings follow."""

    rows: int
    labels: int  # with at least one training row
    pairs: int
    has_texts: bool = True
    dense_dim: int = 0  # dimension of dense vectors; 0: texts or sparse vectors
    own_validation: int = 0  # rows of a validation file
    label_texts: int = 0  # training rows made of label texts

    @property
    def has_words(self) -> bool:
        """Whether rows have tf-idf features: texts, or sparse vectors in their place."""
        return self.dense_dim == 0


def resolve(settings: Settings, size: DataSize) -> Settings:
    """Fill in every None from the size of the data.

    C = 2^ceil(log2(L / 128))     kappa = 10 L / C     beta = L / C     K = 100 b
    epochs: about 300,000 rows in stage 1, at least 3 and at most 6 epochs; 400,000, 4 and 8 in stage 2
    One-versus-all: one cluster, K = L, one stage with the epochs of both.
    Cross-fitted or of few rows, a stacked ranker gains nothing from more than 3 + 4 epochs, and more from the
    validation rows in training than from a choice among checkpoints.
    """
    if settings.ranking.kind == PUBLISHED and not size.has_words:
        raise SettingsError(
            "ranking.kind=published: its classifiers see [tf-idf, phi], and dense vectors have no words; "
            "set ranking.kind=none"
        )
    one_versus_all = settings.network.kind == ONE_VERSUS_ALL
    if one_versus_all:
        settings = _all_labels(settings, size)
    clusters = settings.clustering.clusters or max(1, 2 ** math.ceil(math.log2(max(1.0, size.labels / 128))))
    per_cluster = max(1.0, size.labels / clusters)
    kappa = settings.index.kappa or math.ceil(10 * per_cluster)
    calibration, folds = _held_out(settings, size)
    quick = _is_stacked_bag(settings, size) and (folds > 0 or (calibration > 0 and size.rows <= SMALL))
    held_out = settings.split.validation_rows
    if held_out is None:  # enough to tell checkpoints apart; rows of a file of their own cost no training rows
        held_out = size.own_validation or max(size.rows // 50, min(500, size.rows // 10))
        held_out = 0 if quick and folds else min(MOST_VALIDATION, held_out)
    batch = max(16, min(512, size.rows // (12 if quick else 50)))
    if size.own_validation:  # the file serves both
        held_out = max(0, min(held_out, size.own_validation - calibration))
    label_texts = settings.features.label_texts is not False  # the dataset knows which labels have texts
    visits = max(1, size.rows + (size.label_texts if label_texts else 0))
    epochs1, epochs2 = min(6, max(3, round(300_000 / visits))), min(8, max(4, round(400_000 / visits)))
    if quick:
        epochs1, epochs2 = 3, 4
    if one_versus_all:
        epochs1 += epochs2
    kind = settings.encoder.kind if settings.encoder.kind != "auto" else "bag" if size.has_texts else "vectors"
    return replace(
        settings,
        network=replace(
            settings.network,
            saved_precision=settings.network.saved_precision
            or ("int8" if _is_stacked(settings, size) else settings.network.precision),
        ),
        split=replace(settings.split, validation_rows=held_out, calibration_rows=calibration),
        features=replace(
            settings.features,
            min_df=settings.features.min_df or (2 if size.rows >= 1000 else 1),
            label_texts=label_texts,
        ),
        clustering=replace(settings.clustering, clusters=clusters),
        encoder=replace(
            settings.encoder,
            kind=kind,
            dim=settings.encoder.dim or (DIM_OF_STACKED if _is_stacked_bag(settings, size) else DIM),
        ),
        index=replace(
            settings.index,
            kappa=kappa,
            beta=settings.index.beta or per_cluster,
            shortlist_size=settings.index.shortlist_size or 100 * settings.index.beam_size,
        ),
        score_model=_resolve_score_model(settings.score_model, calibration, folds, small=size.rows <= SMALL),
        stage1=_resolve_stage(settings.stage1, epochs1, batch),
        stage2=_resolve_stage(settings.stage2, epochs2, batch),
    )


def _all_labels(settings: Settings, size: DataSize) -> Settings:
    """One-versus-all: one cluster with an edge to every label, all labels in the shortlist, so that yhat = 1."""
    if settings.index.shortlist_size not in (None, size.labels):
        given = f"index.shortlist_size={settings.index.shortlist_size}"
        raise SettingsError(f"{given}: network.kind={ONE_VERSUS_ALL} classifies all {size.labels} labels; leave it out")
    fixed = {"clustering.clusters": 1, "index.shortlist_size": size.labels, "index.kappa": size.labels}
    return settings.updated({**fixed, "index.alpha": max(1.0, settings.index.alpha), "stage2.epochs": 0})


def _is_stacked(settings: Settings, size: DataSize) -> bool:
    return settings.ranking.kind == STACKED and size.has_words


def _is_stacked_bag(settings: Settings, size: DataSize) -> bool:
    """A fit that is made quick: a score model over all features loses nothing by it (measured with bags of words)."""
    return settings.encoder.kind in ("auto", "bag") and _is_stacked(settings, size)


def _held_out(settings: Settings, size: DataSize) -> tuple[int, int]:
    """(calibration rows, folds): what the score model, or T of the published ranker, is fitted on.

    One held-out split is too small to fit the score model on, and too large to lose, so folds are held out, each of a
    network of its own (cross-fitting), and the model itself trains on all rows.
    The published ranker has one split: a tree of depth 5 needs fewer rows.
    """
    rows, folds = settings.split.calibration_rows, settings.score_model.folds
    stacked = _is_stacked(settings, size)
    learns = stacked or (settings.ranking.kind == PUBLISHED and settings.published.calibration)
    if folds and size.own_validation:
        raise SettingsError(f"score_model.folds={folds}: the rows of the validation file serve the score; leave it out")
    if folds is None:
        apart = rows is None and size.rows >= 4 * FEWEST and not size.own_validation
        folds = _usual_folds(size) if apart else 0
    folds = folds if stacked else 0
    if rows is None and not learns:
        rows = 0
    elif rows is None and folds:
        rows = min(MOST_HELD_OUT, size.rows // (max(3, folds) if size.rows <= SMALL else 4))
    elif rows is None:
        enough = max(size.rows // 16, min(1500, size.rows // 8), min(FEWEST, size.rows // 4))
        most = MOST_VALIDATION if stacked else MOST_TREE
        rows = min(most, size.own_validation // 2 if size.own_validation else enough)
        rows = rows if rows >= FEWEST else 0
    elif rows and 0 < size.own_validation <= rows:  # the other half is for the choice among checkpoints
        rows = max(1, size.own_validation // 2)
    return rows, folds if rows else 0


def _usual_folds(size: DataSize) -> int:
    """Few pairs tell little about which features are right, and the smaller a fold, the more its parts are like those
    of the model (docs/experiments/folds-of-few-pairs.md)."""
    if size.rows >= MOST_FOLDED:
        return 0
    if size.rows > SMALL:
        return FOLDS
    return next((folds for most, folds in FOLDS_OF_FEW if size.pairs <= most), FOLDS)


def _resolve_score_model(given: ScoreModelSettings, rows: int, folds: int, *, small: bool) -> ScoreModelSettings:
    """Few rows support few hidden units, and need more passes for the same number of steps.

    A network from the start is better on few rows, and no dearer than the folds were; on many, it is only dearer.
    """
    continued = 0 if small else CONTINUED
    held_out = max(1, folds) * rows
    units = min(UNITS, max(4, held_out // ROWS_PER_UNIT))
    passes = max(PASSES, math.ceil(STEPS / max(1, math.ceil(held_out / BATCH))))
    return replace(
        given,
        folds=folds,
        continued_epochs=continued if given.continued_epochs is None else given.continued_epochs,
        hidden_units=given.hidden_units or units,
        epochs=given.epochs or passes,
        negatives=SAMPLED if given.negatives is None else given.negatives,
    )


def _resolve_stage(stage: StageSettings, epochs: int, batch_size: int) -> StageSettings:
    return replace(
        stage,
        epochs=epochs if stage.epochs is None else stage.epochs,
        batch_size=stage.batch_size or batch_size,
    )


def describe(settings: Settings, size: DataSize, name: str) -> str:
    """The settings of a run, in a few lines, before training starts."""
    s = settings
    validation = "its own file" if size.own_validation else f"{s.split.validation_rows} rows held out"
    lines = [
        f"{name}: {size.rows:,} training rows, {size.labels:,} labels with training rows, {size.pairs:,} pairs"
        + (f", {size.label_texts:,} label texts" if size.label_texts and s.features.label_texts else ""),
        *([f"  recipe {s.run.recipe}"] if s.run.recipe else []),
        f"  encoder {s.encoder.kind}{_describe_dim(settings, size)}; {_describe_index(settings)}",
        f"  stage 1 {s.stage1.epochs} epochs, stage 2 {s.stage2.epochs} epochs, batch {s.stage2.batch_size}; "
        f"validation: {validation}{_describe_calibration(settings)}; "
        f"seed {s.run.seed}, {s.run.device}, {s.run.threads} threads",
    ]
    return "\n".join(lines)


def _describe_index(s: Settings) -> str:
    if s.network.kind == ONE_VERSUS_ALL:
        return "one-versus-all: no index, every label trained on every text"
    return (
        f"C={s.clustering.clusters} clusters, kappa={s.index.kappa} edges each; "
        f"alpha={s.index.alpha:g}, beta={s.index.beta:g}; "
        f"beam b={s.index.beam_size}, shortlist K={s.index.shortlist_size}"
    )


def _describe_calibration(s: Settings) -> str:
    """The rows that the score model, or T, is fitted on, where there is one."""
    if s.ranking.kind == NETWORK_ALONE or not s.split.calibration_rows:
        return ""
    if s.ranking.kind == PUBLISHED:
        return f"; calibration: {s.split.calibration_rows} rows" if s.published.calibration else ""
    folds = f"{s.score_model.folds} x " if s.score_model.folds else ""
    return f"; score model: {folds}{s.split.calibration_rows} rows"


def _describe_dim(s: Settings, size: DataSize) -> str:
    """d, where it is known before the encoder is made."""
    if size.dense_dim:
        return f", d={size.dense_dim}"
    return "" if s.encoder.kind == "transformer" else f", d={s.encoder.dim}"
