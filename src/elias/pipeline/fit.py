"""`fit`: a dataset in, a model or an ensemble out, in a run folder, where a killed run resumes.

dataset -> features -> folds -> clusters -> stage 1 -> adjacency -> stage 2 -> ranking parts -> score model -> quality
        -> model folder

folds: the same line up to the ranking parts, without some rows, which the score model is then learned on. The network
of a model with folds goes on from that of the first fold, at the adjacency, with all rows.

model.run/             the run of a model
ensemble.run/          member-0/, member-1/ ...: the runs of its members; what they have in common is built once;
                       85-quality: what they are worth together
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import kernels
from ..core.defaults import describe, resolve
from ..core.devices import pick_device, pick_threads
from ..core.distributed import ALONE, Ranks
from ..core.errors import InputError, RunError, SettingsError
from ..core.files import link_or_copy, link_tree, read_object, remove, replacing
from ..core.progress import SILENT, Progress, duration, progress_as_asked
from ..core.recipes import read_recipe
from ..core.settings import ELIAS, PUBLISHED, Settings, known
from ..dataset import Dataset
from ..dataset.fields import Fields
from ..dataset.label_names import with_names
from ..dataset.objects import dataset_from
from ..evaluation.quality import advice, format_quality
from ..index.clustering import read_clusters
from ..model.compaction import rounded, rounded_encoder
from ..model.ensemble import Ensemble, write_ensemble
from ..model.model import Model
from ..model.storage import load_model, write_around_network
from ..network.storage import write_classifiers
from ..ranking.published import PublishedRanker
from .context import FitContext
from .estimate import estimate_fit
from .features_step import FeatureSet, features_step
from .memory import available_bytes, available_gpu_bytes, refuse_if_too_large
from .network_steps import TrainedNetwork, open_network, train_network
from .published_steps import published_steps
from .quality_step import STEP as QUALITY
from .quality_step import ensemble_quality_step, quality_step, read_quality
from .ranking_steps import (
    OUT_OF_FOLD,
    RankingSteps,
    has_ranking,
    held_out_step,
    model_parts_step,
    open_reranker,
    score_model_step,
    training_texts_steps,
)
from .run_folder import Run
from .stage_task import check_ranks
from .tokens_step import tokens_step

MARKS = ("done.json", "begun.json")  # of a step


def build_model(context: FitContext) -> Path:
    """The whole pipeline, step by step; returns the folder of the finished model."""
    context = replace(context, tokens=tokens_step(context.data, context.settings, context.run))
    features = features_step(context)
    folds = cross_fit(context, features) if has_ranking(context, features) else []
    network = train_network(context, features, start=folds[0].network if continues(context, folds) else None)
    ranking: RankingSteps | Path | None = None
    if context.settings.ranking.kind == PUBLISHED:
        ranking = published_steps(context, features, network)
    elif has_ranking(context, features):
        ranking = stacked_steps(context, features, network, folds)

    def model() -> Model:
        return assembled(context, features, network, ranking)

    quality = quality_step(context, features, network, ranking, model)
    folders = ranking.folders if isinstance(ranking, RankingSteps) else () if ranking is None else (ranking,)
    return model_step(context, model, [network.stage, *folders, quality])


def stacked_steps(
    context: FitContext, features: FeatureSet, network: TrainedNetwork, folds: Sequence[Fold]
) -> RankingSteps:
    """60 to 82: the stacked ranker, its score learned on rows that a fold or this run holds out."""
    held_out = [fold.held_out for fold in folds]
    if not context.settings.score_model.folds and features.held_out.labels.nnz:
        held_out = [held_out_step(context, features, network)]
    score_model = score_model_step(context, held_out, after=features.folder)
    parts, texts = model_parts_step(context, features), training_texts_steps(context, features)
    return RankingSteps(parts, score_model, texts, held_out)


class Fold(NamedTuple):
    """A part of the training rows, and what was trained without it."""

    network: TrainedNetwork
    held_out: Path  # predictions for the rows of the fold


def continues(context: FitContext, folds: Sequence[Fold]) -> bool:
    """Whether the network starts from that of the first fold: it has learned most of what is to be learned.

    Never the other way round: a fold must not see its rows. Members of an ensemble but the first start with clusters
    of their own.
    """
    s = context.settings
    learns_index = s.network.kind == ELIAS and bool(s.stage2.epochs)
    return bool(folds) and learns_index and bool(s.score_model.continued_epochs) and s.run.member == 0


def cross_fit(context: FitContext, features: FeatureSet) -> list[Fold]:
    """Every fold that rows could be held out for."""
    folds = range(context.settings.score_model.folds or 0)
    return [found for fold in folds if (found := _train_fold(context, features, fold)) is not None]


def _train_fold(context: FitContext, whole: FeatureSet, fold: int) -> Fold | None:
    """Held-out predictions of one fold: by a network and ranking parts trained without its rows, in a run of their own.

    Members of an ensemble share the folds of member 0: a network with another clustering scores unseen rows in much the
    same way. None where no rows could be held out.
    """
    settings = context.settings
    shared = " (shared with member 0)" if settings.run.member else ""
    fold_of = f"fold {fold + 1} of {settings.score_model.folds}"
    context.progress.say(f"  score model, {fold_of}: a network and ranking parts without its rows{shared}")
    changes = {"split.seed": settings.split.seed + 1 + fold, "score_model.folds": 0, "run.member": 0}
    settings = settings.updated(changes)
    with context.run.below(f"fold-{fold}") as run:
        run.freeze(settings, settings, context.data.fingerprint(), restart=True)
        inside = context.of_fold(settings, run, whole.folder)
        features = features_step(inside)
        if features.held_out.labels.nnz == 0:
            context.progress.say("  too few texts, or groups of texts, to hold any out")
            return None
        network = train_network(inside, features)
        return Fold(network, held_out_step(inside, features, network))


def assembled(
    context: FitContext, features: FeatureSet, network: TrainedNetwork, ranking: RankingSteps | Path | None
) -> Model:
    """The model as it will answer, from the folders of the steps. `ranking`: a folder is that of the paper's ranker."""
    data = context.data
    counts, n_train = data.training_counts()
    trained = open_network(context, network.stage)
    precision = known(context.settings.network.saved_precision)
    trained.classifier_weights = rounded(trained, precision)
    trained.encoder = rounded_encoder(trained.encoder, precision)
    model = Model(
        network=trained,
        labels=data.labels,
        label_counts=counts,
        stage1_clusters=read_clusters(network.clusters),
        cluster_words=read_object(network.clusters / "words.json", "words")["words"],
        vectorizer=features.vectorizer,
        n_train=n_train,
        about=_about(context, features, network),
        use_kernels=context.settings.run.kernels,
    )
    n_words = features.bow.shape[1]
    if isinstance(ranking, RankingSteps):
        model.reranker = open_reranker(context, ranking, counts, n_words)
    elif ranking is not None:
        size = {"n_labels": len(counts), "n_words": n_words, "dim": model.network.encoder.dim}
        model.reranker = PublishedRanker.load(ranking, **size, threads=context.threads)
    return model


def model_step(context: FitContext, assemble: Callable[[], Model], steps: Sequence[Path]) -> Path:
    """90: everything a user needs, in one folder. `steps`: of the network, of its ranker, of the quality."""
    stage, *ranking, quality = steps

    def build(folder: Path) -> None:
        link_tree(stage / "network", folder)
        for file in [path for step in ranking for path in sorted(step.iterdir())]:
            if file.name not in (*MARKS, OUT_OF_FOLD):
                link_or_copy(file, folder / file.name)
        model = assemble()
        write_classifiers(model.network, folder)  # in the precision of the model, as the encoder
        model.network.encoder.save(folder / "encoder")
        model.about["quality"] = read_quality(quality)[0]
        write_around_network(model, folder)

    depends = {"data": context.data.name, "precision": context.settings.network.saved_precision}
    return context.run.step("90-model", depends, build, after=steps)


def _about(context: FitContext, features: FeatureSet, network: TrainedNetwork) -> dict[str, Any]:
    """What config.json holds besides versions."""
    data = context.data
    return {
        "settings": context.settings.as_dict(),
        "dataset": {
            "name": data.name,
            "exclude_own_id": data.settings.exclude_own_id,
            "propensity_a": data.settings.propensity_a,
            "propensity_b": data.settings.propensity_b,
            "fields": data.fields.as_dict(),
            "language": data.settings.language or None,  # of the label texts
            "features": None if features.vectorizer is not None else int(features.bow.shape[1]),  # None: texts
        },
        "validation": read_object(network.stage / "stage.json", "best")["best"],
    }


# -- what users call --------------------------------------------------------------------------------------------------


def fit(
    data: Any,
    labels: Any = None,
    *,
    test: Any = None,
    validation: Any = None,
    text: str | Sequence[str] | None = None,
    id: str | None = None,
    separator: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    recipe: str | Path | None = None,
    run_dir: str | Path | None = None,
    members: int = 1,
    progress: Progress | bool | None = None,
    force: bool = False,
) -> Model | Ensemble:
    """Train a model. With `run_dir`, called again after a kill, it continues where it stopped.

    Parameters
    ----------
    data
        A file or folder, a DataFrame, a list of dicts, texts, a matrix of vectors, or a `Dataset`.
    labels
        The labels of the texts or vectors: one entry per row (a label or a list of labels), or an indicator matrix,
        dense or sparse. For a file or a DataFrame the name of the field with the labels.
    test, validation
        More rows, in the form of `data`, or as a pair (texts, labels).
    text
        The field of the text, or several, which are joined; default: recognized by their names.
    id
        The field of the ids.
    separator
        What stands between two labels of a cell; default: found from the data.
    settings
        Settings that differ from the defaults: `{"stage2.epochs": 5}`, or `Settings`.
    recipe
        Settings to start from: the name of a recipe (`elias recipes` lists them) or a .toml file; `settings` win.
    run_dir
        Where the run keeps its steps; default: a temporary folder.
    members
        With more than one, an ensemble of that many models with different clusterings.
    progress
        Whether to show what was understood and how far it is; default: on a terminal and in a notebook.
    force
        Use a run folder that was started with other settings or data; steps that do not depend on them are kept.
    """
    given, shown = _settings_of(settings, recipe), progress_as_asked(progress)
    field, labels = (labels, None) if isinstance(labels, str) else (None, labels)
    read = _dataset_of(data, labels, Fields.of(text, field, id, separator), {"test": test, "validation": validation})
    shown.say(read.layout)
    for note in read.notes:
        shown.say(f"  note: {note}")
    if run_dir is None:
        with tempfile.TemporaryDirectory(prefix="elias-") as folder:
            # The memory maps of the model outlive the folder.
            return _fit_and_load(read, given, Path(folder), _Options(members, shown, force))
    return _fit_and_load(read, given, Path(run_dir), _Options(members, shown, force))


def _settings_of(given: Any, recipe: Any) -> Settings:
    if isinstance(given, Settings):
        if recipe is not None:
            raise InputError(f"recipe={recipe!r} with complete Settings: pass what differs from the recipe as a dict")
        return given
    start = {} if recipe is None else _recipe_of(recipe)
    if given is None:
        return Settings().updated(start)
    if not isinstance(given, Mapping) or any(not isinstance(key, str) for key in given):
        raise SettingsError(
            f'settings={given!r}: pass a dict of settings by name, such as {{"stage2.epochs": 5}}'[:300]
        )
    return Settings().updated({**start, **given})


def _recipe_of(recipe: Any) -> dict[str, Any]:
    if not isinstance(recipe, str | Path):
        raise InputError(f"recipe={recipe!r}: pass the name of a recipe or the path of a .toml file"[:300])
    return read_recipe(recipe)


def _dataset_of(data: Any, labels: Any, fields: Fields, splits: Mapping[str, Any]) -> Dataset:
    """What users pass as `data`, as a dataset."""
    if not isinstance(data, Dataset):
        return dataset_from(data, labels, fields=fields, **splits)
    more = [name for name, value in [("labels", labels), *splits.items()] if value is not None]
    more += [name for name, value in fields.as_dict().items() if value is not None]
    if more:
        raise InputError(f"{', '.join(more)}: a Dataset has its own; leave them out")
    return data


def _fit_and_load(data: Dataset, given: Settings, run_dir: Path, options: _Options) -> Model | Ensemble:
    with _fitted(data, given, run_dir, options) as finished:
        models = _loaded(finished.folders, finished.settings)
    return models[0] if options.members == 1 else Ensemble(models, finished.quality)


def fit_to(
    data: Dataset,
    output: str | Path,
    *,
    settings: Settings | None = None,
    members: int = 1,
    progress: Progress = SILENT,
    force: bool = False,
    ranks: Ranks = ALONE,
) -> Path:
    """Train in OUTPUT.run/ and put the finished model at OUTPUT. An existing OUTPUT is refused without `force`.

    Rank 0 of several `ranks` calls this, the others `run_tasks`.
    """
    output = Path(output)
    check_output(output, force=force)
    run_dir = output.with_name(output.name + ".run")
    with _fitted(data, settings or Settings(), run_dir, _Options(members, progress, force, ranks)) as finished:
        check_output(output, force=force)  # another run may have put it there before this one had the lock
        with replacing(output) as part:
            if members == 1:
                _link_model(finished.folders[0], part)
                return output
            names = [f"member-{number}" for number in range(members)]
            for name, path in zip(names, finished.folders, strict=True):
                _link_model(path, part / name)
            write_ensemble(part, names, finished.quality)
    return output


def check_output(output: Path, *, force: bool) -> None:
    """Refuse a place where no model can go, before anything is computed."""
    if output.name in ("", ".."):
        raise InputError(f'"{output}" is not a name for a model; write -o FOLDER')
    if not output.exists():
        return
    if not force:
        raise RunError(f"{output} exists; choose another -o, or pass --force to replace it")
    if not any((output / name).is_file() for name in ("config.json", "ensemble.json")):
        raise RunError(f"{output} exists and is not a model, so --force does not replace it; choose another -o")


def _link_model(finished: Path, part: Path) -> None:
    link_tree(finished, part)
    for mark in MARKS:
        remove(part / mark)


class _Options(NamedTuple):
    """How a fit is called."""

    members: int
    progress: Progress
    force: bool
    ranks: Ranks = ALONE


class _Finished(NamedTuple):
    folders: list[Path]  # of the models
    settings: Settings  # of the last
    quality: dict[str, Any] | None  # of the model, or of the ensemble


@contextmanager
def _fitted(data: Dataset, given: Settings, run_dir: Path, options: _Options) -> Iterator[_Finished]:
    """The finished models, after what they are worth was printed. The run is locked meanwhile."""
    members, progress = options.members, options.progress
    if members < 1:
        raise InputError(f"members={members}: an ensemble has at least one member")
    kernels.discard_stale()
    if members == 1:
        with Run(run_dir, progress) as run:
            finished, used = _fit_in(data, given, None, run, options)
            yield _Finished([finished], used, _say_quality(data, finished.parent / QUALITY, progress))
        return
    with Run(run_dir, progress) as whole:
        folders: list[Path] = []
        settings: list[Settings] = []
        for number in range(members):
            progress.say(f"member {number + 1} of {members}")
            with whole.below(f"member-{number}", reuse=run_dir / "member-0" if number else None) as run:
                asked = given.updated({"run.member": number})
                finished, used = _fit_in(data, asked, settings[0] if settings else None, run, options)
            folders.append(finished)
            settings.append(used)
        context = FitContext(data, used, whole, progress, pick_device(used.run.device))
        step = ensemble_quality_step(context, folders, lambda: Ensemble(_loaded(folders, used)))
        yield _Finished(folders, used, _say_quality(data, step, progress, "this ensemble"))


def _loaded(folders: list[Path], used: Settings) -> list[Model]:
    """The finished models, opened."""
    models: list[Model] = []
    options: dict[str, Any] = {"device": used.run.device, "threads": used.run.threads, "use_kernels": used.run.kernels}
    for path in folders:
        models.append(load_model(path, **options, shared=(folders[0], models[0]) if models else None))
    return models


def _say_quality(data: Dataset, step: Path, progress: Progress, what: str = "this model") -> dict[str, Any] | None:
    """Print what a model is worth, and return it."""
    quality, reason = read_quality(step)
    counts, _ = data.training_counts()
    for line in (format_quality(quality, what) if quality else reason, *advice(quality, counts)):
        progress.say(line)
    return quality


def _fit_in(
    data: Dataset, given: Settings, first: Settings | None, run: Run, options: _Options
) -> tuple[Path, Settings]:
    """The finished model of one run. `first`: the resolved settings of member 0, which the others have too."""
    data = with_names(data, given.features.label_texts)
    machine = {"run.threads": pick_threads(given.run.threads), "run.device": str(pick_device(given.run.device))}
    if first is None:
        resolved = resolve(given.updated(machine), data.size())
    else:
        resolved = first.updated({"run.member": given.run.member})
    settings = run.freeze(given, resolved, data.fingerprint(), restart=options.force)
    check_ranks(settings, options.ranks)
    needs = estimate_fit(data, settings, data.size())
    if settings.run.check_memory:
        refuse_if_too_large(needs, available_bytes(), available_gpu_bytes(settings.run.device))
    pick_threads(settings.run.threads)  # of a run that was started before: its own number
    run.progress.say(describe(settings, data.size(), data.name))
    run.progress.say(f"  about {duration(needs.seconds)} in all on {needs.machine} (a rough estimate)")
    if settings.run.kernels and kernels.are_new():
        run.progress.say("  compiling the kernels, once for this installation: about a minute in all")
    context = FitContext(data, settings, run, run.progress, pick_device(settings.run.device), ranks=options.ranks)
    with kernels.reference(not settings.run.kernels):
        return build_model(context), settings
