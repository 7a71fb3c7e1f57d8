"""ELIAS: find the right few of a million labels for a text.

    import elias
    model = elias.fit("shop.csv")                 # or a DataFrame, texts and labels, a folder
    model.predict(["pdf viewer for gnome"])
    model.evaluate("test.csv")
    model.save("models/shop")
    elias.load("models/shop")

`elias.sklearn` has the same as a scikit-learn classifier. Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.version import __version__

if TYPE_CHECKING:
    from .core.errors import EliasError as EliasError
    from .core.predictions import Predictions as Predictions
    from .core.settings import Settings as Settings
    from .dataset import Dataset as Dataset
    from .dataset import load_dataset as load_dataset
    from .model.ensemble import Ensemble as Ensemble
    from .model.ensemble import load as load
    from .model.model import Model as Model
    from .pipeline.fit import fit as fit

_HOME = {
    "Dataset": "dataset",
    "EliasError": "core.errors",
    "Ensemble": "model.ensemble",
    "Model": "model.model",
    "Predictions": "core.predictions",
    "Settings": "core.settings",
    "fit": "pipeline.fit",
    "load": "model.ensemble",
    "load_dataset": "dataset",
}

__all__ = [
    "Dataset",
    "EliasError",
    "Ensemble",
    "Model",
    "Predictions",
    "Settings",
    "__version__",
    "fit",
    "load",
    "load_dataset",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name == "sklearn":  # so that `import elias` is enough for elias.sklearn.EliasClassifier
        return import_module(".sklearn", __name__)
    raise AttributeError(f'module "elias" has no attribute "{name}"')
