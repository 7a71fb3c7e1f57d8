"""SKOS vocabularies as label files: labels.ttl (Turtle), labels.rdf (RDF/XML), or the one .ttl or .rdf of a folder.

    <http://example.org/s1> a skos:Concept ;
        skos:prefLabel "Fiction"@en, "Belletristik"@de ;      text of the label: prefLabel in one language
        skos:altLabel "Novels"@en ;                           alternative names: altLabels in this language
        skos:notation "F10" .

Every concept is a label, in the order of the file; deprecated ones (owl:deprecated) are left out. The language is
`language` of dataset.toml, otherwise the one that most prefLabels have. A concept without a prefLabel in it takes one
without a language, then one in the most frequent language that it has.

Rows name a concept by its URI, its notation or its prefLabel. What most of them use becomes the label's id, so that
predictions name labels as the rows did; the URI is kept beside it (`LabelSet.uris`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import DataError, MissingExtraError
from .defects import LABEL_BY_NAME, place
from .files import Folder, file_errors, one_line, open_bytes
from .labels import AMBIGUOUS, LabelSetBuilder
from .records import SplitRecords

SUFFIXES = (".ttl", ".rdf")
SKOS = "http://www.w3.org/2004/02/skos/core#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"


@dataclass
class _Concept:
    """What the file says about one subject; texts as (language, text), the language in lower case or empty."""

    is_concept: bool = False
    is_deprecated: bool = False
    names: list[tuple[str, str]] = field(default_factory=list)
    alternatives: list[tuple[str, str]] = field(default_factory=list)
    notations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Vocabulary:
    """The concepts of a vocabulary file, which are the first labels of `labels`."""

    file: Path
    language: str
    labels: LabelSetBuilder
    notations: list[list[str]]  # of each concept

    def settle_ids(self, splits: Mapping[str, SplitRecords]) -> None:
        """After the rows are read: ids are what most of the labels in them are named by, where it is unambiguous."""
        labels, n_concepts = self.labels, len(self.notations)
        numbers = np.unique(np.concatenate([read.numbers for read in splits.values()] or [np.empty(0, np.int32)]))
        n_used = int((numbers < n_concepts).sum())
        by_notation = {name for name, number in labels.used_names.items() if name in self.notations[number]}
        by_text = labels.used_names.keys() - by_notation
        chosen: set[str] = set()
        if 2 * len(by_notation) > n_used:
            chosen = by_notation
            self._rename([[*(n for n in names if n in by_notation), *names] for names in self.notations])
        elif 2 * len(by_text) > n_used:
            chosen = by_text
            self._rename([[text] for text in labels.texts[:n_concepts]])
        others = sorted(labels.used_names.keys() - chosen)
        if others:
            example = f'"{others[0]}" is "{labels.ids[labels.used_names[others[0]]]}"'
            labels.log.note(LABEL_BY_NAME, place(self.file, None, example), len(others))

    def _rename(self, names: list[list[str]]) -> None:
        labels = self.labels
        for number, found in enumerate(names):
            name = next((name for name in found if labels.other_names.get(name) == number), None)
            if name is not None:
                labels.ids[number], labels.numbers[name] = name, number


def read_vocabulary(folder: Folder, language: str, labels: LabelSetBuilder) -> Vocabulary | None:
    """The vocabulary of a dataset folder into an empty label set; None if there is none."""
    file = folder.find("labels.ttl", "labels.rdf")
    if file is None:
        names = [name for name in folder.names if name.removesuffix(".gz").endswith(SUFFIXES)]
        if len(names) > 1:
            message = f"two vocabularies: {names[0]} and {names[1]}; keep one, or name it labels.ttl or labels.rdf"
            raise DataError(message, file=folder.path)
        file = folder.find(*names)
    return None if file is None else read_skos_file(file, language, labels)


def read_skos_file(file: Path, language: str, labels: LabelSetBuilder) -> Vocabulary:
    """A SKOS file into an empty label set; `language` "" is the most frequent one."""
    concepts = _concepts(file)
    if not concepts:
        raise DataError("no concept: skos:Concept with skos:prefLabel is read", file=file)
    languages = Counter(tag for concept in concepts.values() for tag, _ in concept.names)
    ranked = sorted(languages, key=lambda tag: (-languages[tag], tag))
    wanted = language.lower() or (ranked[0] if ranked else "")
    if language and not any(_is(tag, wanted) for tag in ranked):
        known = ", ".join(tag or "no language" for tag in ranked[:10])
        raise DataError(f'no prefLabel in language "{language}" (dataset.toml); prefLabels have: {known}', file=file)
    order = [wanted, *(tag for tag in ranked if _is(tag, wanted)), "", *ranked]
    for uri, concept in concepts.items():
        text = min(concept.names, key=lambda found: order.index(found[0]), default=("", ""))[1]
        others = [other for tag, other in concept.alternatives if not tag or _is(tag, wanted)]
        labels.uris[labels.add(uri, text, "; ".join(others))] = uri
    labels.end_label_file()
    notations = [concept.notations for concept in concepts.values()]
    for number, text in enumerate(labels.texts):
        for name in {*notations[number], text} - {""}:
            labels.other_names[name] = number if name not in labels.other_names else AMBIGUOUS
    return Vocabulary(file, wanted, labels, notations)


def _is(tag: str, language: str) -> bool:
    """en-GB is English."""
    return tag == language or (bool(language) and tag.startswith(f"{language}-"))


def _concepts(file: Path) -> dict[str, _Concept]:
    """By URI: what is a skos:Concept or, if nothing is declared as one, what has a prefLabel."""
    found: dict[str, _Concept] = {}
    for uri, predicate, value, tag in _statements(file):
        concept = found.setdefault(uri, _Concept())
        if predicate == TYPE:
            concept.is_concept |= value == f"{SKOS}Concept"
        elif predicate == DEPRECATED:
            concept.is_deprecated |= value in ("true", "1")
        elif predicate == f"{SKOS}notation":
            concept.notations.append(value)
        elif predicate == f"{SKOS}prefLabel":
            concept.names.append((tag, value))
        else:
            concept.alternatives.append((tag, value))
    declared = any(concept.is_concept for concept in found.values())
    return {
        uri: concept
        for uri, concept in found.items()
        if (concept.is_concept if declared else concept.names) and not concept.is_deprecated
    }


def _statements(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """(subject, predicate, value, language in lower case) of the statements that are read; spaces are tidied."""
    try:
        import pyoxigraph as rdf
    except ImportError:
        raise MissingExtraError(f"{file.name}: reading SKOS", "skos") from None
    is_turtle = file.name.removesuffix(".gz").endswith(".ttl")
    wanted = {TYPE, DEPRECATED, *(f"{SKOS}{name}" for name in ("prefLabel", "altLabel", "notation"))}
    try:
        with file_errors(file), open_bytes(file) as stream:
            read: Any = rdf.parse(stream, format=rdf.RdfFormat.TURTLE if is_turtle else rdf.RdfFormat.RDF_XML)
            for statement in read:
                predicate, value = statement.predicate.value, statement.object
                if predicate in wanted and isinstance(statement.subject, rdf.NamedNode):
                    tag = (value.language or "") if isinstance(value, rdf.Literal) else ""
                    yield statement.subject.value, predicate, " ".join(str(value.value).split()), tag.lower()
    except (SyntaxError, ValueError, EOFError) as error:
        kind = "Turtle" if is_turtle else "RDF/XML"
        line = error.lineno if isinstance(error, SyntaxError) else None
        reason = error.msg if isinstance(error, SyntaxError) else one_line(error)
        raise DataError(f"not {kind}: {' '.join(str(reason).split())}", file=file, line=line) from None
