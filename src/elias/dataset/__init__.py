"""Data in: recognise a layout, read it, and hand over rows, labels and what was noticed on the way."""

from .check import Report, check, format_report
from .dataset import Dataset
from .labels import LabelSet
from .log import Note
from .recognise import collect_defects, load_dataset
from .rows import KIND_LABEL_TEXT, KIND_TEXT, Rows, TextColumn
from .settings import DatasetSettings

__all__ = [
    "KIND_LABEL_TEXT",
    "KIND_TEXT",
    "Dataset",
    "DatasetSettings",
    "LabelSet",
    "Note",
    "Report",
    "Rows",
    "TextColumn",
    "check",
    "collect_defects",
    "format_report",
    "load_dataset",
]
