"""Data in: recognize a layout, read it, and return rows, labels and notes on what was skipped or repaired."""

from .check import Report, check, format_report
from .dataset import Dataset
from .defects import Note
from .fields import Fields
from .labels import LabelSet
from .layouts import collect_defects, load_dataset
from .objects import dataset_from
from .rows import KIND_LABEL_TEXT, KIND_TEXT, Rows, TextColumn
from .settings import DatasetSettings

__all__ = [
    "KIND_LABEL_TEXT",
    "KIND_TEXT",
    "Dataset",
    "DatasetSettings",
    "Fields",
    "LabelSet",
    "Note",
    "Report",
    "Rows",
    "TextColumn",
    "check",
    "collect_defects",
    "dataset_from",
    "format_report",
    "load_dataset",
]
