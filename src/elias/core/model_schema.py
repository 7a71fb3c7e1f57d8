"""What every file of a model folder holds: the one place where names, types, shapes and ranges are declared.

Readers check a file with `core/schema.py` when they open it. Dimensions that several files share:

    labels     L, rows of labels.tsv             words    of the vocabulary, or columns of the vectors
    clusters   C                                  dim      d, of phi
    edges      of the index                       texts    training texts that vote (k-NN)
"""

from __future__ import annotations

from .schema import Array, Arrays, Field, Fields

CONFIG, LABELS = "config.json", "labels.tsv"
# May be deleted: what the search reads is made again, and explanations do without the texts.
MAY_BE_MISSING = ("search.safetensors", "training_texts.safetensors")
TOP_FILES = (
    LABELS, "clusters.json", "vectorizer.json", "vectorizer.npy", "network.json", "clusters.safetensors",
    "index.safetensors", "classifiers.safetensors", "search.safetensors", "ranking.json", "score_model.json",
    "inverted_index.safetensors", "linear_ranker.safetensors", "label_tree.safetensors", "knn.safetensors",
    "training_texts.safetensors", "published.json", "calibration_tree.safetensors",
)  # fmt: skip
FOLDERS = ("encoder",)  # every file in them

MOST = 1 << 24  # candidates, neighbors, clusters of a beam: far beyond what is useful, far below what overflows


def sparse_rows(prefix: str, rows: str, columns: str, *, rising: bool = False, coded: bool = False) -> dict[str, Array]:
    """`SparseRows`: row r is words[indptr[r] : indptr[r + 1]]; `rising`: it is searched by bisection."""
    entries = f"{prefix} entries"
    return {
        f"{prefix}.indptr": Array("int64", f"{rows} + 1", pointers=entries),
        f"{prefix}.words": Array("int32", entries, below=columns, rising=f"{prefix}.indptr" if rising else None),
        f"{prefix}.weights": Array("int16" if coded else "float32", entries),
        f"{prefix}.biases": Array("float32", rows),
        **({f"{prefix}.steps": Array("float32", rows, low=0.0)} if coded else {}),
    }


# -- the network ------------------------------------------------------------------------------------------------------

INDEX: Arrays = {
    "indptr": Array("int64", "clusters + 1", pointers="edges"),
    "labels": Array("int32", "edges", below="labels", rising="indptr"),
    "logits": Array("float32", "edges", optional=True),
}
INDEX_HEADER: Fields = {
    "beta": Field("number", low=1e-12, high=1e12),
    "n_labels": Field("whole", low=0),
}
CLUSTERS: Arrays = {"weight": Array("float32", "clusters, dim"), "bias": Array("float32", "clusters")}
CLASSIFIERS: Arrays = {
    "weights": Array("float32 uint16 int8", "labels, dim"),
    "scales": Array("float32", "labels", low=0.0, optional=True),  # of int8
    "biases": Array("float32", "labels, 1"),
}
SEARCH: Arrays = {
    "codes": Array("int8", "labels, dim", optional=True),  # rows that are int8 are their own codes
    "facts": Array("float32", "labels, 4"),
    "edge_labels": Array("int32", "edges", below="labels"),
    "edge_scores": Array("float32", "edges", low=0.0, high=1.0),
}
NETWORK: Fields = {
    "search": Field(
        "object",
        fields={
            "alpha": Field("number", low=1e-6, high=1e9),
            "beam_size": Field("whole", low=1),
            "shortlist_size": Field("whole", low=1),
            "training_shortlist_size": Field("whole", low=1, or_null=True),
            "parent_slots": Field("whole", low=0),
            "random_clusters": Field("flag"),
        },
    )
}

# -- encoders ---------------------------------------------------------------------------------------------------------

KINDS = ("bag", "dense", "transformer", "hybrid")
ENCODER: Fields = {"kind": Field("text", choices=KINDS)}
HEAD: Arrays = {
    "head.residual.weight": Array("float32", "dim, dim"),
    "head.residual.bias": Array("float32", "dim"),
}
HEAD_OPTIONS: Fields = {
    "dim": Field("whole", low=1, high=MOST),
    "radius": Field("number", low=1e-6, high=1e9),
    "dropout": Field("number", low=0.0, high=1.0),
}
BAG: Arrays = {"words": Array("float32 uint16", "words, dim"), **HEAD}
PROJECTION: Arrays = {"projection": Array("float32", "dim, sentence dim")}
HYBRID: Fields = {**HEAD_OPTIONS, "weight": Field("number", low=-1e6, high=1e6)}
TRANSFORMER: Fields = {
    "dim": Field("whole", low=1, high=MOST),
    "head": Field("text", choices=("residual", "none")),
    "radius": Field("number", low=1e-6, high=1e9),
    "dropout": Field("number", low=0.0, high=1.0),
    "pooling": Field("text", choices=("cls", "mean")),
    "max_length": Field("whole", low=2, high=MOST),
    "precision": Field("text", choices=("auto", "float32", "bfloat16")),
    "frozen": Field("flag"),
    "checkpointing": Field("flag"),
    "compile": Field("flag"),
}
VECTORIZER: Fields = {
    "format_version": Field("whole", low=1, high=1),
    "settings": Field(
        "object",
        fields={
            "min_df": Field("whole", low=1),
            "max_words": Field("whole", low=1),
            "n_texts": Field("whole", low=0),
        },
    ),
    "words": Field("texts"),
}
IDF: Arrays = {"idf": Array("float64", "words", low=1e-6, high=1e6)}  # it is 1 or more

# -- rankers ----------------------------------------------------------------------------------------------------------

LOSSES = ("squared-hinge", "logistic")
RANKING: Fields = {
    "network_candidates": Field("whole", low=1, high=MOST),
    "word_candidates": Field("whole", low=1, high=MOST),
    "knn": Field("flag"),
    "label_trees": Field("whole", low=0, high=3),
}
LINEAR_RANKER: Arrays = sparse_rows("ranker", "labels", "words", coded=True)
# Its words are those of the vocabulary and the dimensions of phi.
PUBLISHED_RANKER: Arrays = sparse_rows("ranker", "labels", "words")
INVERTED_INDEX: Arrays = {
    **sparse_rows("label_texts", "labels", "words"),
    **sparse_rows("postings", "words", "labels", rising=True),
    "mixture": Array("float32", "labels, 2"),
}
KNN: Arrays = {
    "indptr": Array("int64", "texts + 1", pointers="votes"),
    "labels": Array("int32", "votes", below="labels", rising="indptr"),
    "neighbors": Array("int64", "1", low=1, high=MOST),
    "budget": Array("int64", "1", low=1),
    **sparse_rows("texts", "words", "texts"),
}


def label_tree(number: int) -> Arrays:
    """One of the trees; its nodes come after the labels."""
    nodes = f"nodes of tree {number}"
    return {
        f"parents{number}": Array("int32", nodes, low=-1),
        **sparse_rows(f"tree{number}", nodes, "words", coded=True),
    }


TRAINING_TEXTS: Arrays = {"n_texts": Array("int64", "1", low=0)}


def strings(name: str) -> Arrays:
    """Texts in one buffer."""
    return {
        f"{name}.ends": Array("int64", "texts + 1", pointers=f"{name} bytes"),
        f"{name}.buffer": Array("uint8", f"{name} bytes"),
    }


SCORE_MODEL: Fields = {
    "loss": Field("text", choices=LOSSES),
    "features": Field("texts"),
    "learned": Field(
        "object",
        or_null=True,
        fields={
            "mean": Field("numbers", array=Array("float32", "inputs")),
            "spread": Field("numbers", array=Array("float32", "inputs", low=1e-9)),
            "linear": Field("numbers", array=Array("float32", "inputs")),
            "out": Field("numbers", array=Array("float32", "hidden units")),
            "shift": Field("numbers", array=Array("float32", "hidden units")),
            "hidden": Field("numbers", array=Array("float32", "inputs, hidden units")),
            "bias": Field("number", low=-1e30, high=1e30),
        },
    ),
    "calibration": Field(
        "object",
        or_null=True,
        fields={
            "scores": Field("numbers", array=Array("float64", "knots")),
            "probabilities": Field("numbers", array=Array("float64", "knots", low=0.0, high=1.0)),
            "error": Field("number", low=0.0, high=1.0),
            "rows": Field("whole", low=0),
        },
    ),
}
PUBLISHED: Fields = {
    "network_candidates": Field("whole", low=1, high=MOST),
    "loss": Field("text", choices=LOSSES),
    "tree_weight": Field("number", low=0.0, high=1.0, or_null=True),
}
CALIBRATION_TREE: Arrays = {
    "input": Array("int64", "nodes", low=-1, high=3),
    "threshold": Array("float64", "nodes"),
    "left": Array("int64", "nodes", low=-1),
    "right": Array("int64", "nodes", low=-1),
    "value": Array("float64", "nodes", low=0.0, high=1.0),
    "counts": Array("int64", "labels", low=0),
}

# -- the model itself -------------------------------------------------------------------------------------------------

CLUSTER_WORDS: Fields = {"words": Field("list")}
DATASET: Fields = {
    "features": Field("whole", low=1, or_null=True),
    "name": Field("text", optional=True),
    "exclude_own_id": Field("flag", optional=True),
    "propensity_a": Field("number", low=0.0, high=10.0, optional=True),
    "propensity_b": Field("number", low=0.0, high=1e6, optional=True),
    "language": Field("text", or_null=True, optional=True),
    "fields": Field(
        "object",
        or_null=True,
        optional=True,
        fields={
            "text": Field("texts", or_null=True, optional=True),
            "labels": Field("text", or_null=True, optional=True),
            "id": Field("text", or_null=True, optional=True),
            "separator": Field("text", or_null=True, optional=True),
        },
    ),
}
MEASURES: Fields = {name: Field("number", low=0.0, high=100.0) for name in ("P@1", "P@5", "nDCG@5", "R@100")}
QUALITY = Field(
    "object",
    or_null=True,
    optional=True,
    fields={
        "rows": Field("text"),
        "n_rows": Field("whole", low=0),
        "metrics": Field("object", fields=MEASURES),
        "calibration_error": Field("number", low=0.0, high=1.0, or_null=True),
        "baselines": Field("object"),
        "note": Field("text", or_null=True, optional=True),
    },
)
CONFIG_FIELDS: Fields = {
    "n_train": Field("whole", low=0),
    "dataset": Field("object", fields=DATASET),
    "settings": Field("object", optional=True),
    "validation": Field("object", optional=True),
    "versions": Field("object", optional=True),
    "quality": QUALITY,
    "files": Field("object"),
}
ENSEMBLE: Fields = {
    "members": Field("texts"),
    "configs": Field("object"),
    "quality": QUALITY,
}
