"""SKOS vocabularies as label files: which concepts, names, languages; how rows may name them; what survives saving."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from elias.core.errors import DataError, MissingExtraError, ModelError
from elias.dataset.dataset import Dataset
from elias.dataset.defects import LABEL_BY_NAME, UNLISTED_LABEL
from elias.dataset.label_texts import texts_of
from elias.dataset.labels import LabelSet
from elias.dataset.layouts import load_dataset
from elias.model.label_file import read_labels, write_labels
from helpers.processes import SMALL
from helpers.tiny_dataset import fit_tiny, write_tiny_dataset

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <http://example.org/> .
: a skos:ConceptScheme ; skos:prefLabel "The scheme"@en .
:fiction a skos:Concept ; skos:notation "F 10" ;
    skos:prefLabel "Fiction"@en, "Belletristik"@de ; skos:altLabel "Novels"@en, "Romane"@de, "F." .
:history a skos:Concept ; skos:notation "H" ; skos:prefLabel "  History \\n of it "@en-GB, "Geschichte"@de .
:kunst a skos:Concept ; skos:notation "K" ; skos:prefLabel "Kunst"@de .
:music a skos:Concept ; skos:notation "M" ; skos:prefLabel "Music"@en .
:old a skos:Concept ; skos:prefLabel "Old"@en ; owl:deprecated true .
:twin1 a skos:Concept ; skos:notation "T" ; skos:prefLabel "Twin"@en .
:twin2 a skos:Concept ; skos:notation "T" ; skos:prefLabel "Twin"@en .
"""
RDF_XML = """<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="http://example.org/fiction">
    <skos:prefLabel xml:lang="en">Fiction</skos:prefLabel><skos:altLabel xml:lang="en">Novels</skos:altLabel>
  </skos:Concept>
  <rdf:Description rdf:about="http://example.org/music">
    <rdf:type rdf:resource="http://www.w3.org/2004/02/skos/core#Concept"/>
    <skos:prefLabel>Music</skos:prefLabel>
  </rdf:Description>
</rdf:RDF>
"""
BASE = "http://example.org/"


def write(folder: Path, labels: list[list[str]], vocabulary: str = TURTLE, name: str = "labels.ttl") -> Path:
    rows = [json.dumps({"text": f"text {number}", "labels": each}) for number, each in enumerate(labels)]
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    content = vocabulary.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def named(data: Dataset) -> dict[str, str]:
    return dict(zip(data.labels.ids, data.labels.texts, strict=True))


def row_labels(data: Dataset) -> list[list[str]]:
    matrix = data.train.labels
    return [
        [data.labels.ids[n] for n in matrix.indices[matrix.indptr[r] : matrix.indptr[r + 1]]]
        for r in range(len(data.train))
    ]


def test_rows_that_use_uris(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, [[f"{BASE}fiction", f"{BASE}music"], [f"{BASE}history"]]))
    assert data.layout == "train.jsonl with labels.ttl (SKOS, en): text from text, labels from labels (1.5 per row)"
    assert data.settings.language == "en"
    assert named(data) == {
        f"{BASE}fiction": "Fiction",
        f"{BASE}history": "History of it",
        f"{BASE}kunst": "Kunst",
        f"{BASE}music": "Music",
        f"{BASE}twin1": "Twin",
        f"{BASE}twin2": "Twin",
    }
    assert data.labels.alternatives[0] == "Novels; F."
    assert data.labels.uris == data.labels.ids
    assert row_labels(data) == [[f"{BASE}fiction", f"{BASE}music"], [f"{BASE}history"]]
    assert LABEL_BY_NAME not in [note.kind for note in data.notes]
    assert list(texts_of(data.labels, np.array([0]), ids=True)) == ["Fiction Novels; F."], "a URI is no name"


def test_rows_that_use_notations(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, [["F 10", "M"], ["H", f"{BASE}kunst"], ["new"]]))
    twins = [f"{BASE}twin1", f"{BASE}twin2"]  # they share their notation
    assert data.labels.ids == ["F 10", "H", "K", "M", *twins, "new"]
    assert data.labels.uris == [f"{BASE}{name}" for name in ("fiction", "history", "kunst", "music")] + [*twins, ""]
    assert row_labels(data) == [["F 10", "M"], ["H", "K"], ["new"]]
    kinds = [note.kind for note in data.notes]
    assert UNLISTED_LABEL in kinds
    assert LABEL_BY_NAME not in kinds
    assert data.labels.uri(6) is None


def test_rows_that_use_names(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, [["Fiction", "Music"], ["History of it"], ["K"]]))
    assert data.labels.ids[:4] == ["Fiction", "History of it", "Kunst", "Music"]
    assert row_labels(data) == [["Fiction", "Music"], ["History of it"], ["Kunst"]]
    note = next(note for note in data.notes if note.kind == LABEL_BY_NAME)
    assert (note.count, note.example) == (1, 'labels.ttl: "K" is "Kunst"')


@pytest.mark.parametrize("name", ["T", "Twin"])
def test_a_name_of_several_concepts(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf'train.jsonl:2: label "{name}" names several concepts; use the URI'):
        load_dataset(write(tmp_path, [["F 10"], [name]]))


def test_another_language(tmp_path: Path) -> None:
    write(tmp_path, [["Belletristik"], ["Kunst"], ["Geschichte"]])
    (tmp_path / "dataset.toml").write_text('language = "de"\n', encoding="utf-8")
    data = load_dataset(tmp_path)
    assert data.labels.ids[:4] == ["Belletristik", "Geschichte", "Kunst", "Music"]
    assert data.labels.alternatives[0] == "Romane; F."
    (tmp_path / "dataset.toml").write_text('language = "fr"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r'labels.ttl: no prefLabel in language "fr" .* have: en, de, en-gb'):
        load_dataset(tmp_path)


@pytest.mark.parametrize("name", ["labels.rdf", "subjects.rdf", "labels.rdf.gz"])
def test_rdf_xml(tmp_path: Path, name: str) -> None:
    data = load_dataset(write(tmp_path, [[f"{BASE}fiction"]], RDF_XML, name))
    assert named(data) == {f"{BASE}fiction": "Fiction", f"{BASE}music": "Music"}
    assert name in data.layout


def test_a_file_without_declared_concepts(tmp_path: Path) -> None:
    text = TURTLE.replace("a skos:ConceptScheme", "a skos:Collection").replace("a skos:Concept ;", "")
    assert len(load_dataset(write(tmp_path, [["M"]], text)).labels) == 7  # with the collection


@pytest.mark.parametrize(
    ("vocabulary", "words"),
    [
        ("", "file is empty|no concept"),
        ("@prefix a: <http://a/> .\na:b a:c .\n", "labels.ttl:2: not Turtle"),
        ("<http://a/b> <http://a/c> 'x' .\n", "no concept"),
        ("<#a> a <http://www.w3.org/2004/02/skos/core#Concept> .\n", "not Turtle"),
        ('<http://a/b> a "\ud800"'.encode("utf-8", "surrogatepass").decode("latin-1"), "not Turtle"),
    ],
)
def test_a_broken_file(tmp_path: Path, vocabulary: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        load_dataset(write(tmp_path, [["M"]], vocabulary))
    assert "\n" not in str(caught.value)


def test_two_vocabularies(tmp_path: Path) -> None:
    write(tmp_path, [["M"]], name="a.ttl")
    write(tmp_path, [["M"]], RDF_XML, name="b.rdf")
    with pytest.raises(DataError, match=r"two vocabularies: a.ttl and b.rdf; keep one"):
        load_dataset(tmp_path)
    write(tmp_path, [["M"]])
    assert "labels.ttl" in load_dataset(tmp_path).layout
    (tmp_path / "labels.tsv").write_text("M\tMusic\n", encoding="utf-8")
    data = load_dataset(tmp_path)
    assert "labels.tsv" in data.layout
    assert data.labels.uris is None


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(MissingExtraError, match=r"labels.ttl: reading SKOS needs .*elias-xmc\[skos\]"):
        load_dataset(write(tmp_path, [["M"]]))


def test_uris_survive_saving(tmp_path: Path) -> None:
    labels = LabelSet(["a", "b\tc"], ["A", ""], uris=["http://example.org/ä", ""])
    write_labels(tmp_path / "labels.tsv", labels, np.array([3, 0]), np.array([-1, 2]))
    read, counts, clusters = read_labels(tmp_path / "labels.tsv")
    assert (list(read.ids), list(read.texts)) == (["a", "b\tc"], ["A", ""])
    assert read.uris == labels.uris
    assert (counts.tolist(), clusters.tolist()) == ([3, 0], [-1, 2])
    assert read.uri(1) is None
    content = (tmp_path / "labels.tsv").read_text(encoding="utf-8")
    (tmp_path / "labels.tsv").write_text(content.replace("\t2\t", "\t2"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"labels.tsv:3: .* damaged"):
        read_labels(tmp_path / "labels.tsv")


def test_a_model_keeps_uris_and_language(tmp_path: Path) -> None:
    """Fitted with a vocabulary in place of labels.tsv: ids are the notations that the rows use."""
    from elias import load

    folder = tmp_path / "data"
    folder.mkdir()
    write_tiny_dataset(folder)
    concepts = [line.split("\t") for line in (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()]
    (folder / "labels.tsv").unlink()
    lines = [
        f':{name} a skos:Concept ; skos:notation "{name}" ; skos:prefLabel "{text}"@fi .' for name, text in concepts
    ]
    (folder / "subjects.ttl").write_text("\n".join([*TURTLE.splitlines()[:3], *lines, ""]), encoding="utf-8")
    model = load(fit_tiny(folder, tmp_path / "model", SMALL))
    assert list(model.labels.ids) == [name for name, _ in concepts]
    assert list(model.labels.texts) == [text for _, text in concepts]
    assert list(model.labels.uris or ()) == [f"{BASE}{name}" for name, _ in concepts]
    assert model.about["dataset"]["language"] == "fi"
