"""Bring the golden models up to the formats of today.

    python tests/golden/convert.py

One function per change of a format, in the order of the changes; each leaves a model alone that already has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

MODELS = Path(__file__).resolve().parent / "models"


STAGE_KEYS = {
    "rate_encoder": "learning_rate_encoder", "rate_transformer": "learning_rate_transformer",
    "rate_clusters": "learning_rate_clusters", "rate_classifiers": "learning_rate_classifiers",
    "rate_edges": "learning_rate_edges", "optimiser": "optimizer", "decay": "weight_decay",
}  # fmt: skip


def edit(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as `elias.core.files.write_json` does."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def drop_settings(model: Path, *names: str) -> None:
    """Remove settings (`section.key`) from config.json."""
    path = model / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in names:
        section, key = name.split(".")
        content.get("settings", {}).get(section, {}).pop(key, None)
    edit(path, content)


def without_projection_word_dropout_and_sgd(model: Path) -> None:
    drop_settings(model, "model.label_dim", "encoder.word_dropout", "stage1.momentum", "stage2.momentum")
    path = model / "encoder" / "encoder.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("word_dropout", None)
    edit(path, content)


def ranking_files_in_the_words_of_the_field(model: Path) -> None:
    drop_settings(model, "ranker.refit", "ranker.folds", "ranker.embedding_scale")
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    edit(model / "config.json", {**config, "format_version": 1})
    if not (model / "plus.json").exists():
        return
    plus = json.loads((model / "plus.json").read_text(encoding="utf-8"))
    summary = {"network_candidates": plus["by_network"], "word_candidates": plus["by_words"],
               "knn": plus["neighbours"] > 0, "label_tree": plus["label_tree"], "sees_phi": "embedding" in plus}  # fmt: skip
    edit(model / "ranking.json", summary)
    fusion = json.loads((model / "fusion.json").read_text(encoding="utf-8"))
    if "probability" in fusion:
        fusion["calibration"] = fusion.pop("probability")
    if "tree" in fusion:
        fusion["tree"] = {("input" if name == "column" else name): values for name, values in fusion["tree"].items()}
    edit(model / "score_model.json", fusion)
    rename_arrays(model, "lexical", "inverted_index", {"texts.": "label_texts.", "shares": "mixture"})
    rename_arrays(model, "ranker", "linear_ranker", {})
    rename_arrays(model, "neighbours", "knn", {"most": "neighbors"})
    for name in ("plus.json", "fusion.json"):
        (model / name).unlink()


def rename_arrays(model: Path, old: str, new: str, names: dict[str, str]) -> None:
    """Another name for a safetensors file, and for arrays in it (or the beginnings of their names)."""
    arrays = load_file(model / f"{old}.safetensors")
    for before, after in names.items():
        arrays = {(after + key[len(before) :] if key.startswith(before) else key): a for key, a in arrays.items()}
    save_file(arrays, model / f"{new}.safetensors")
    (model / f"{old}.safetensors").unlink()


def settings_in_the_words_of_the_field(model: Path) -> None:
    path = model / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    old = content["settings"]
    if "fusion" not in old:
        return
    stages = {
        name: {STAGE_KEYS.get(key, key): value for key, value in old[name].items()} for name in ("stage1", "stage2")
    }
    lexical, ranker, fusion = old.pop("lexical"), old.pop("ranker"), old.pop("fusion")
    split = {("near_duplicates" if key == "twins" else key): value for key, value in old["split"].items()}
    content["settings"] = {
        **old, **stages, "network": old.pop("model"), "split": split,
        "ranking": {"kind": "stacked" if ranker["enabled"] else "none", "network_candidates": fusion["candidates"]},
        "inverted_index": {
            "candidates": lexical["candidates"], "words_per_label": lexical["words_per_label"],
            "label_text_weight": lexical["label_text_weight"], "unseen_labels": lexical["unseen"],
        },
        "knn": {
            "neighbors": lexical["neighbours"], "words_per_text": lexical["words_per_text"],
            "postings_budget": lexical["neighbour_postings"],
        },
        "linear_ranker": {
            "loss": ranker["loss"], "cost": ranker["cost"], "tolerance": ranker["epsilon"],
            "max_iterations": ranker["passes"], "min_weight": ranker["least_weight"],
            "negatives": ranker["negatives"], "negatives_from": ranker["negatives_from"],
            "embedding": ranker["embedding"],
        },
        "label_tree": {"enabled": ranker["label_tree"], "leaf_size": ranker["leaf"]},
        "score_model": {
            "kind": fusion["kind"], "folds": fusion["draws"], "hidden_units": fusion["hidden"],
            "epochs": fusion["epochs"], "tree_weight": fusion["tree_weight"],
        },
    }  # fmt: skip
    content["settings"].pop("model", None)
    edit(path, content)


CHANGES = [
    without_projection_word_dropout_and_sgd,
    ranking_files_in_the_words_of_the_field,
    settings_in_the_words_of_the_field,
]


def main() -> None:
    # A member of an ensemble is a model of its own.
    for path in sorted(MODELS.rglob("encoder.json")):
        for change in CHANGES:
            change(path.parents[1])


if __name__ == "__main__":
    main()
