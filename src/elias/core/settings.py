"""Settings: frozen, typed, validated once with every problem listed.

The sections come first, the machinery that reads and checks values after them. A setting that is None is chosen by
`defaults.resolve` from the size of the data; the chosen values are printed before training and stored in the run
folder. `letter` is the symbol of the paper. Settings are never modified: `updated` returns a changed copy.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .errors import SettingsError, did_you_mean

PRECISIONS = ("float32", "bfloat16", "int8")  # of stored classifiers
ELIAS, ONE_VERSUS_ALL = MODEL_KINDS = ("elias", "one-versus-all")
STACKED, PUBLISHED, NETWORK_ALONE = RANKINGS = ("stacked", "published", "none")
ENCODERS = ("auto", "bag", "transformer", "hybrid", "vectors")
MEMBERS_APART = 1_000_003  # between the seeds of two members of an ensemble: far more than seeds users try
T = typing.TypeVar("T")
_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def setting(
    default: Any, what: str, *, letter: str = "", low: float | None = None, high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:  # fmt: skip
    """A field with its meaning, the symbol of the paper, and the values it may have."""
    about = {"what": what, "letter": letter, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What is trained."""

    kind: str = setting(
        ELIAS, "elias, or one-versus-all: every label trained on every text, without an index", choices=MODEL_KINDS
    )
    precision: str = setting(
        "float32", "of the label classifiers in training; bfloat16: half the memory, stochastic rounding",
        choices=("float32", "bfloat16"),
    )  # fmt: skip
    saved_precision: str | None = setting(
        None, "of the label classifiers in the model folder; default: int8 under a stacked ranker, else as trained",
        choices=PRECISIONS,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """Rows held out of training, before anything else reads the data."""

    seed: int = setting(0, "seed of the split; separate from run.seed", low=0)
    validation_rows: int | None = setting(None, "rows for choosing among checkpoints", low=0)
    near_duplicates: bool = setting(True, "hold near-duplicates of a held-out text out with it")
    calibration_rows: int | None = setting(
        None, "rows held out of everything, for the score model or for T; with score_model.folds, in each fold", low=0
    )


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """Texts: tf-idf, and label texts."""

    min_df: int | None = setting(None, "minimum number of texts that a word occurs in", low=1)
    max_words: int = setting(500_000, "maximum size of the vocabulary", low=1)
    label_texts: bool | None = setting(
        None, "train on the texts of labels too; auto: where they have texts, or ids that are words; true: on any ids"
    )
    label_ids: bool = setting(True, "put the id of a label before its text, where the id is a name (has a letter)")
    own_ids: bool = setting(True, "where own ids are excluded: a text whose id is a label teaches that label too")


@dataclass(frozen=True, kw_only=True)
class ClusteringSettings:
    """The clusters stage 1 starts with."""

    clusters: int | None = setting(None, "number of clusters", letter="C", low=1)
    iterations: int = setting(20, "2-means iterations per node", low=1)
    again_after: int = setting(0, "epochs after which labels are clustered again, on [tf-idf, phi]; 0: never", low=0)


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """phi."""

    kind: str = setting("auto", "which encoder; auto: bag for texts, vectors for vectors", choices=ENCODERS)
    dim: int | None = setting(
        None, "dimension of phi (bag, hybrid, sparse vectors); default: 256 under a stacked ranker, else 512",
        letter="d", low=1,
    )  # fmt: skip
    dropout: float = setting(0.5, "dropout on phi", low=0.0, high=0.99)
    head: str = setting(
        "residual", "residual: a learned layer, then length normalization; none: phi is the pooled vector, as in the "
        "paper (transformer)", choices=("residual", "none"),
    )  # fmt: skip
    radius: float = setting(8.0, "length of phi; with head=none phi keeps its own", low=0.001)
    model: str = setting("", "transformer, hybrid: name or folder of a Hugging Face model")
    pooling: str = setting("mean", "transformer, hybrid: how tokens become one vector", choices=("cls", "mean"))
    max_length: int = setting(128, "transformer, hybrid: maximum number of tokens per text", low=2)
    precision: str = setting(
        "auto", "transformer, hybrid: arithmetic of the forward pass; auto: bfloat16 on CUDA, float32 elsewhere",
        choices=("auto", "float32", "bfloat16"),
    )  # fmt: skip
    frozen: bool = setting(True, "transformer: do not train its weights, encode each text once")
    checkpointing: bool = setting(
        False, "transformer that is fine-tuned: compute activations again in the backward pass, for less memory"
    )
    compile: bool = setting(False, "transformer that is fine-tuned: run it through torch.compile")

    @property
    def is_fine_tuned(self) -> bool:
        """Whether a transformer is trained, and so computes all of every step."""
        return self.kind == "transformer" and not self.frozen


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Search and edges, equations (1) to (6), (9), (10)."""

    alpha: float = setting(10.0, "how many clusters can be fully active", letter="alpha", low=0.001)
    beta: float | None = setting(None, "how many labels of a cluster can be fully active", letter="beta", low=0.001)
    kappa: int | None = setting(None, "edges per cluster at the start of stage 2", letter="kappa", low=1)
    beam_size: int = setting(20, "clusters explored per text", letter="b", low=1)
    shortlist_size: int | None = setting(None, "labels classified per text in prediction", letter="K", low=1)
    training_shortlist_size: int = setting(500, "labels classified per text in training", letter="K", low=1)
    parent_slots: int = setting(5, "clusters beyond the beam, per training text, for the parents of its labels", low=0)
    random_clusters: bool = setting(False, "fill the slots that no parent took with random clusters (random negatives)")
    cluster_weights: str = setting("centroids", "initialization of W_C in stage 1", choices=("centroids", "random"))
    logits: str = setting("counts", "initialization of the edge logits", choices=("counts", "random"))


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """One stage of training."""

    epochs: int | None = setting(
        None, "passes over the training rows; 0: stage 1 keeps its start, stage 2 is left out", low=0
    )
    batch_size: int | None = setting(None, "rows per step", low=1)
    learning_rate_encoder: float = setting(2e-3, "learning rate of phi", letter="lr phi", low=0.0)
    learning_rate_transformer: float = setting(
        1e-4, "learning rate of a transformer that is fine-tuned", letter="lr phi", low=0.0
    )
    learning_rate_clusters: float = setting(2e-3, "learning rate of W_C", letter="lr W", low=0.0)
    learning_rate_classifiers: float = setting(5e-3, "learning rate of W_L", letter="lr W", low=0.0)
    learning_rate_edges: float = setting(2e-2, "learning rate of A", letter="lr W", low=0.0)
    shortlist_loss_weight: float = setting(0.05, "weight of the shortlist loss", letter="lambda", low=0.0)
    classifiers: str = setting("centroids", "initialization of W_L", choices=("centroids", "random", "carried"))
    gain: float = setting(10.0, "largest logit of classifiers initialized from centroids", low=0.0)
    warmup: float = setting(0.1, "share of the steps with rising rate", low=0.0, high=1.0)
    weight_decay: float = setting(0.01, "weight decay, not on biases", low=0.0, high=1.0)
    optimizer: str = setting(
        "rowwise", "of the large tables: AdamW with one step size per row, or per value", choices=("rowwise", "adamw")
    )
    epsilon: float = setting(1e-8, "AdamW's epsilon", low=0.0)
    accumulate: int = setting(1, "batches whose gradients are summed before one step", letter="k", low=1)
    accumulated: str = setting(
        "classifiers", "what steps every `accumulate` batches: W_L; or all: W_L, A and W_C, as in the authors' program",
        choices=("classifiers", "all"),
    )  # fmt: skip
    average_from: float = setting(0.5, "share of the stage after which weights are averaged; 1: never", low=0, high=1)
    average_every: int = setting(0, "steps between two averaged weights; 0: one per epoch", low=0)
    evaluate_every: int = setting(2, "epochs between two validations", low=1)


@dataclass(frozen=True, kw_only=True)
class RankingSettings:
    """What stands on top of the network."""

    kind: str = setting(
        STACKED, "stacked: candidates by words too, ranked by a score model over all features (needs tf-idf); "
        "published: ELIAS++ of the paper, the network's candidates by T + p q (needs tf-idf); none: the network alone",
        choices=RANKINGS,
    )  # fmt: skip
    network_candidates: int = setting(
        100, "candidates per text from the network; of the published ranker also per training row", low=1
    )


@dataclass(frozen=True, kw_only=True)
class PublishedSettings:
    """ELIAS++ as the paper and the authors' program have it (`ranking.kind=published`)."""

    unretrieved_positives: bool = setting(
        False, "train the classifier of a label on all texts that have it (the authors' program); false: only on texts "
        "that retrieve it (the paper)",
    )  # fmt: skip
    calibration: bool = setting(True, "score T + p q, T a decision tree on split.calibration_rows; false: p q")
    tree_weight: float = setting(
        0.5, "w in w T + (1 - w) p q; the paper's sum is 0.5, the authors' program has 0.3", low=0.0, high=1.0
    )


@dataclass(frozen=True, kw_only=True)
class InvertedIndexSettings:
    """Candidates by words."""

    candidates: int = setting(200, "candidates per text from the inverted index", low=1)
    words_per_label: int = setting(512, "words kept of the texts of a label", low=1)
    label_text_weight: float = setting(3.0, "weight of the label text against one training text of the label", low=0.0)
    unseen_labels: bool = setting(False, "find labels without a training row too, by their own text")


@dataclass(frozen=True, kw_only=True)
class KNNSettings:
    """Votes of the nearest training texts."""

    neighbors: int = setting(50, "nearest training texts that vote for their labels; 0: none", low=0)
    words_per_text: int = setting(64, "words kept of a training text", low=1)
    postings_budget: int = setting(20_000, "(word, text) pairs read to find the nearest neighbors of a text", low=1)
    keep_texts: bool = setting(
        True, "keep the first 200 characters and the id of each training text in the model, for explanations; false: "
        "explanations have its row number only",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LinearRankerSettings:
    """One sparse linear classifier per label. Cost and iterations are those of the label trees too.

    All but `negatives` hold for the published ranker too.
    """

    loss: str = setting("squared-hinge", "loss of its classifiers", choices=("squared-hinge", "logistic"))
    cost: float = setting(1.0, "weight of the loss against the size of the weights", letter="C", low=1e-6)
    tolerance: float = setting(0.1, "tolerance of the solver", low=1e-9)
    max_iterations: int = setting(100, "maximum number of passes over the pairs of a label", low=1)
    min_weight: float = setting(0.1, "weights below are dropped", low=0.0)
    negatives: int = setting(100, "maximum number of hard negatives per training row, found by words", low=1)


@dataclass(frozen=True, kw_only=True)
class LabelTreeSettings:
    """Trees of linear classifiers over the labels: the mean of their path scores is a feature."""

    trees: int = setting(3, "number of label trees; 0: none", low=0, high=3)
    leaf_size: int = setting(
        32, "maximum number of labels per leaf of the first tree; each other tree has leaves twice as large", low=1
    )
    min_weight: float = setting(0.2, "weights below are dropped", low=0.0)
    words_per_text: int = setting(256, "strongest words of a training text that its classifiers learn from", low=1)


@dataclass(frozen=True, kw_only=True)
class ScoreModelSettings:
    """The score of a candidate, learned on held-out rows."""

    folds: int | None = setting(
        None, "folds of cross-fitting, each held out of a network of its own; 0: one split, held out of the model; "
        "default: 2 from 400 to 100,000 rows, 3 or 5 of few pairs, else 0; 0 with a validation file", low=0,
    )  # fmt: skip
    continued_epochs: int | None = setting(
        None, "epochs of stage 2 with all rows, from the network of the first fold; 0: a network from the start, the "
        "default up to 10,000 rows", low=0,
    )  # fmt: skip
    hidden_units: int | None = setting(None, "units of the learned score; default: 32, or fewer for few rows", low=1)
    epochs: int | None = setting(None, "passes over the held-out rows; default: 40, or more for few rows", low=1)
    negatives: int | None = setting(
        None,
        "wrong candidates per text and step, sampled; 0: all; default: 32",
        low=0,
    )


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """This run."""

    recipe: str = setting("", "the recipe that the settings come from; `--recipe` sets it")
    seed: int = setting(0, "seed of clustering, initialization, order and noise", low=0)
    member: int = setting(0, "number of this model in an ensemble: another clustering, order and noise", low=0)
    device: str = setting("auto", "where torch computes: auto, cpu, cuda, cuda:1, mps ...")
    threads: int | None = setting(None, "CPU threads; default: the cores of this machine", low=1)
    kernels: bool = setting(
        True, "use the compiled kernels on a CPU; false: the reference implementation in numpy and torch for everything"
    )
    check_memory: bool = setting(True, "refuse to start a fit that needs more memory than is available")
    checkpoint_seconds: float = setting(45.0, "seconds of training between two checkpoints", low=0.0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, in sections.

    Parameters
    ----------
    network
        What is trained.
    split
        Rows held out.
    features
        tf-idf and label texts.
    clustering
        The clusters of stage 1.
    encoder
        phi.
    index
        Search and edges.
    stage1, stage2
        The two stages of training.
    ranking
        The stacked ranker, the paper's, or the network alone.
    published
        The paper's ranker.
    inverted_index, knn
        Candidates by words, and votes of the nearest training texts.
    linear_ranker, label_tree
        Sparse linear classifiers.
    score_model
        The score of a candidate.
    run
        Seeds, device, threads.
    """

    network: NetworkSettings = NetworkSettings()
    split: SplitSettings = SplitSettings()
    features: FeatureSettings = FeatureSettings()
    clustering: ClusteringSettings = ClusteringSettings()
    encoder: EncoderSettings = EncoderSettings()
    index: IndexSettings = IndexSettings()
    stage1: StageSettings = StageSettings()
    stage2: StageSettings = StageSettings(classifiers="carried")
    ranking: RankingSettings = RankingSettings()
    published: PublishedSettings = PublishedSettings()
    inverted_index: InvertedIndexSettings = InvertedIndexSettings()
    knn: KNNSettings = KNNSettings()
    linear_ranker: LinearRankerSettings = LinearRankerSettings()
    label_tree: LabelTreeSettings = LabelTreeSettings()
    score_model: ScoreModelSettings = ScoreModelSettings()
    run: RunSettings = RunSettings()

    def __post_init__(self) -> None:
        problems = [problem for part in fields(self) for problem in _problems_of(part.name, getattr(self, part.name))]
        if self.stage1.classifiers == "carried":
            problems.append("stage1.classifiers=carried: there is nothing to carry over; choose centroids or random")
        if self.encoder.kind == "hybrid" and not self.encoder.frozen:
            problems.append("encoder.frozen=false: encoder.kind=hybrid keeps its transformer as it is; leave it out")
        if self.encoder.head == "none" and self.encoder.kind != "transformer":
            given = f"encoder.head=none with encoder.kind={self.encoder.kind}"
            problems.append(f"{given}: only a transformer can do without a head; set encoder.head=residual")
        problems += _too_much_decay("stage1", self.stage1) + _too_much_decay("stage2", self.stage2)
        if self.network.kind == ONE_VERSUS_ALL:
            problems += _without_index(self)
        if problems:
            raise SettingsError("; ".join(problems))

    def updated(self, changes: Mapping[str, Any]) -> Settings:
        """A changed copy.

        Parameters
        ----------
        changes
            Values by "section.key", such as `{"stage2.epochs": 5}`. Strings are read as the type of the setting;
            "auto" and "none" are None where a setting may be None.

        Raises
        ------
        SettingsError
            With every problem at once: unknown keys with a suggestion, values of a wrong type or out of range.
        """
        sections: dict[str, dict[str, Any]] = {}
        problems = []
        for path, value in changes.items():
            try:
                section, key, read = _read(self, path, value)
                sections.setdefault(section, {})[key] = read
            except SettingsError as problem:
                problems.append(str(problem))
        changed = {name: replace(getattr(self, name), **values) for name, values in sections.items()}
        problems += [problem for name, values in changed.items() for problem in _problems_of(name, values)]
        if problems:
            raise SettingsError("; ".join(problems))
        return replace(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Mapping[str, Any]]) -> Settings:
        """The inverse of `as_dict`; unknown keys are errors."""
        return cls().updated({f"{s}.{k}": value for s, section in content.items() for k, value in section.items()})


def _too_much_decay(name: str, stage: StageSettings) -> list[str]:
    """A step multiplies weights by 1 - rate * decay: at 0 or below it would erase them."""
    numbers = {key: value for key, value in vars(stage).items() if isinstance(value, int | float)}
    decay = numbers.get("weight_decay", 0.0)  # a value that is not a number is reported by _problems_of
    return [
        f"{name}.{key}={rate:g} with {name}.weight_decay={decay:g}: a step would take {100 * rate * decay:.0f} % "
        f"of every weight; lower {name}.weight_decay"
        for key, rate in numbers.items()
        if key.startswith("learning_rate_") and rate * decay >= 1
    ]


def _without_index(settings: Settings) -> list[str]:
    """Settings that conflict with a model without an index."""
    fixed = {"clustering.clusters": 1, "clustering.again_after": 0, "stage2.epochs": 0}
    given = {
        path: getattr(getattr(settings, section), key) for path in fixed for section, _, key in [path.partition(".")]
    }
    return [
        f"{path}={value}: network.kind={ONE_VERSUS_ALL} trains one stage without an index; leave it out"
        for path, value in given.items()
        if value not in (None, fixed[path])
    ]


def differences(old: Settings, new: Settings) -> list[str]:
    """`section.key old -> new`, for every setting that differs."""
    return [
        f"{section.name}.{item.name} {getattr(a, item.name)} -> {getattr(b, item.name)}"
        for section in fields(old)
        for a, b in [(getattr(old, section.name), getattr(new, section.name))]
        for item in fields(a)
        if getattr(a, item.name) != getattr(b, item.name)
    ]


def noise_seed(settings: Settings) -> int:
    """The seed of everything in which members of an ensemble differ; that of member 0 is run.seed itself."""
    return settings.run.seed + MEMBERS_APART * settings.run.member


def known(value: T | None) -> T:
    """A setting that `resolve` has filled in."""
    assert value is not None, "this setting has not been resolved"
    return value


# Values: read as the type of their field, and checked against what the field allows


def _read(settings: Settings, path: str, value: Any) -> tuple[str, str, Any]:
    """(section, key, value of the right type) of one change."""
    section, _, key = path.partition(".")
    names = [item.name for item in fields(settings)]
    if section not in names or not key:
        known = [f"{s}.{item.name}" for s in names for item in fields(getattr(settings, s))]
        raise SettingsError(f'unknown setting "{path}"{did_you_mean(path, known)} (a setting is section.key)')
    keys = {item.name: item for item in fields(getattr(settings, section))}
    if key not in keys:
        close = did_you_mean(path, [f"{section}.{name}" for name in keys])
        raise SettingsError(f'unknown setting "{path}"{close or "; known: " + ", ".join(keys)}')
    hints = typing.get_type_hints(type(getattr(settings, section)))
    return section, key, _convert(path, value, hints[key])


def _convert(path: str, value: Any, hint: Any) -> Any:
    """`value` as the type of the setting."""
    union = isinstance(hint, types.UnionType)
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] if union else [hint]
    kind = kinds[0]
    if union and (value is None or value in ("auto", "none", "None")):
        return None
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise SettingsError(f"{path}={value}: must be true or false")
    if isinstance(value, bool):  # true is no number, though Python takes it for 1
        raise SettingsError(f"{path}={str(value).lower()}: must be {_KINDS[kind]}")
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise SettingsError(f"{path}={value}: must be a whole number")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{path}={value}: must be {_KINDS[kind]}") from None


def _problems_of(section: str, values: Any) -> list[str]:
    """Everything wrong with the values of a section."""
    found = []
    hints = typing.get_type_hints(type(values))
    for item in fields(values):
        value = getattr(values, item.name)
        if value is not None or type(None) not in typing.get_args(hints[item.name]):
            problem = _problem(value, hints[item.name], item.metadata)
            found += [f"{section}.{item.name}={value}: {problem}"] if problem else []
    return found


def _problem(value: Any, hint: Any, about: Mapping[str, Any]) -> str:
    """What is wrong with one value; empty if nothing is."""
    kinds = typing.get_args(hint) or (hint,)
    if not _is_a(value, kinds):
        return f"must be {_KINDS[kinds[0]]}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if about["choices"] and value not in about["choices"]:
        return f"must be one of {', '.join(about['choices'])}{did_you_mean(str(value), about['choices'])}"
    if about["low"] is not None and value < about["low"]:
        return f"must be at least {about['low']}"
    if about["high"] is not None and value > about["high"]:
        return f"must be at most {about['high']}"
    return ""


def _is_a(value: Any, kinds: tuple[Any, ...]) -> bool:
    """isinstance, except that True is not an integer and an integer is a number."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))
