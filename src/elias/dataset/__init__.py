"""Data in: recognise a layout, read it, and hand over rows, labels and what was noticed on the way."""

from elias.dataset.check import Report, check, format_report
from elias.dataset.dataset import Dataset
from elias.dataset.labels import LabelSet
from elias.dataset.log import Note
from elias.dataset.recognise import collect_defects, load_dataset
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT, Rows, TextColumn
from elias.dataset.settings import DatasetSettings

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
