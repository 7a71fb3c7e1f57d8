"""`elias inspect MODEL`: sizes, settings and what the index has learned; or one label, or one cluster."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..core.errors import InputError, did_you_mean


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show what a model has learned",
        description="Sizes, settings, and what the index has learned; or one label, or one cluster.",
    )
    parser.add_argument("model", help="model folder")
    parser.add_argument("--label", metavar="ID", help="the clusters of this label")
    parser.add_argument("--cluster", type=int, metavar="N", help="the labels of this cluster, its typical words")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..model.ensemble import load, only_member

    model = load(args.model)
    if args.label is not None:
        content = _label(only_member(model, args.model, "inspect"), args.label)
    elif args.cluster is not None:
        content = _cluster(only_member(model, args.model, "inspect"), args.cluster)
    else:
        content = _model(model, Path(args.model))
    if args.json:
        print(json.dumps(content, ensure_ascii=False, allow_nan=False))
        return 0
    from ..evaluation.quality import format_quality

    tables = [format_quality(content.pop("quality"))] if "quality" in content else []
    print("\n\n".join([_as_text(content), *tables]))
    return 0


def _model(model: Any, folder: Path) -> dict[str, Any]:
    """Of an ensemble without what its members differ in; inspect a member for that."""
    from ..evaluation.inspect import overview

    members = model.all_members()
    files = {file.stat().st_ino: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    size = sum(files.values())  # files that members share are there once
    return {
        "model": str(folder),
        "size": f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB",
        "data": model.about.get("dataset", {}),
        "training rows": model.n_train,
        **({"members": len(members)} if len(members) > 1 else {"validation": model.about.get("validation", {})}),
        **(overview(model).as_dict() if len(members) == 1 else {"labels": len(model.labels)}),
        "quality": model.about.get("quality"),
    }


def _label(model: Any, label_id: str) -> dict[str, Any]:
    from ..evaluation.inspect import clusters_of_label

    number = model.labels.number_of.get(label_id)
    if number is None:
        raise InputError(f'unknown label "{label_id}"{did_you_mean(label_id, model.labels.ids)}')
    return {
        "label": label_id,
        **({"text": text} if (text := model.labels.texts_to_show[number]) else {}),
        "training rows": int(model.label_counts[number]),
        "clusters": clusters_of_label(model, number),
    }


def _cluster(model: Any, cluster: int) -> dict[str, Any]:
    from ..evaluation.inspect import labels_of_cluster

    n_clusters = model.network.index.n_clusters
    if not 0 <= cluster < n_clusters:
        raise InputError(f"--cluster {cluster}: this model has clusters 0 to {n_clusters - 1}")
    return {"cluster": cluster, "words": model.cluster_words[cluster], "labels": labels_of_cluster(model, cluster)}


def _as_text(content: dict[str, Any]) -> str:
    """One line per fact; lists of objects as indented rows."""
    lines = []
    width = max(len(name) for name in content) + 2
    for name, value in content.items():
        title = name.replace("_", " ").ljust(width)
        if isinstance(value, dict):
            lines.append(title + "  ".join(f"{key}={item}" for key, item in value.items()))
        elif isinstance(value, list) and value and isinstance(value[0], (dict, tuple)):
            lines.append(title.rstrip())
            lines += [f"    {_row(item)}" for item in value]
        elif isinstance(value, list):
            lines.append(title + "  ".join(str(item) for item in value))
        elif isinstance(value, int) and not isinstance(value, bool):
            lines.append(f"{title}{value:,}")
        else:
            lines.append(f"{title}{value}")
    return "\n".join(lines)


def _row(item: Any) -> str:
    """One line of a list: values side by side, and the names of what is true."""
    pairs = item.items() if isinstance(item, dict) else (("", value) for value in item)
    cells = []
    for name, value in pairs:
        if isinstance(value, bool):
            cells += [name] if value else []
        elif isinstance(value, float):
            cells.append(f"{value:.4f}")
        else:
            cells.append(" ".join(value) if isinstance(value, list) else str(value))
    return "  ".join(cells)
