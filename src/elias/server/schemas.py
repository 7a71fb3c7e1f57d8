"""The bodies of requests and responses: pydantic types that check requests and that OpenAPI (/docs) shows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

REF = "#/components/schemas/{model}"
TEXT = "PDF viewer for the GNOME desktop"

# The first wrong item is enough: pydantic would take seconds to list a million of them.
Strings = Annotated[list[str], Field(fail_fast=True)]
# One text may be sent without a list around it. A union would put its branches into the places of errors.
Texts = Annotated[
    Strings,
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]


class RequestBody(BaseModel):
    """Strict: "5" is not 5. Unknown fields are allowed here and refused by `validation.parse`, which reports the first.

    pydantic's own `extra="forbid"` would collect an error for each of them.
    """

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra={"additionalProperties": False})


class PredictRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "additionalProperties": False,
            "examples": [
                {"texts": [TEXT], "k": 5},
                {"texts": [TEXT, "compiler for Fortran"], "ids": ["a", "b"], "k": 3, "explain": True},
                {"texts": [TEXT], "labels": ["evince", "okular", "xpdf"]},
            ],
        }
    )
    texts: Texts = Field(description="the texts to label; one text may be sent as a plain string")
    ids: Strings | None = Field(None, description="an id for each text, echoed in the answer")
    k: int = Field(5, ge=1, description="labels per text")
    threshold: float | None = Field(
        None, ge=0, le=1, description="leave out labels below this probability; needs a calibrated model"
    )
    explain: bool = Field(False, description="add the parts of each score")
    labels: Strings | None = Field(
        None, description="score only these labels, each over all clusters and not only over the beam"
    )
    block: Strings | None = Field(None, description="labels never to suggest")
    rare: float = Field(
        0.0, ge=0, le=1, description="how strongly rare labels are preferred: 0 as predicted, 1 rare labels first"
    )
    stream: bool = Field(
        False, description="answer as application/jsonl: one result per line, sent as they are computed"
    )
    model: str | None = Field(None, description="which model, where several are served")


class PathsRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "examples": [{"text": TEXT, "k": 8}]})
    text: str
    k: int = Field(8, ge=1, le=50, description="labels to show")
    label: str | None = Field(None, description="show this label too, wherever it ranks")
    model: str | None = None


class FeedbackRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"text": TEXT, "accepted": ["evince"], "rejected": ["inkscape"]}],
        }
    )
    text: str = Field(description="the text that was labeled")
    id: str | None = Field(None, max_length=1000, description="its id; otherwise the service makes one")
    accepted: Strings = Field([], description="labels that are right: ids")
    rejected: Strings = Field([], description="labels that are wrong: ids")
    model: str | None = Field(None, description="the model that made the suggestions, where several are served")


class ReloadRequest(RequestBody):
    model: str | None = Field(None, description="only this model; otherwise all")


class ExplainedWord(BaseModel):
    word: str
    weight: float = Field(description="above 0: for the label; below: against it")


class SimilarText(BaseModel):
    id: str | None = Field(description="of the training row, where it has one and the model keeps it")
    text: str = Field(description="its first 200 characters; empty where the model keeps no texts")
    similarity: float
    row: int = Field(description="number of the training row, from 0")


class Explanation(BaseModel):
    words: list[ExplainedWord] = Field(description="the words of the text that count most, at most 6, strongest first")
    texts: list[SimilarText] = Field(description="the nearest training texts that have the label, at most 3")
    contributions: dict[str, float] = Field(
        description="base, network, label text, label's texts, linear classifiers, similar texts, popularity; together "
        "they are the score"
    )
    score: float = Field(description="before calibration")


class Suggestion(BaseModel):
    model_config = ConfigDict(extra="allow")  # explain adds the parts that the model has
    label: str
    score: float
    text: str | None = Field(None, description="the label's own text, if it has one")
    uri: str | None = Field(None, description="the label's URI, if its vocabulary has URIs")
    cluster: int | None = Field(None, description="explain: the cluster of the winning path")
    cluster_score: float | None = None
    edge_score: float | None = None
    classifier: float | None = None
    explanation: Explanation | None = Field(None, description="explain, with a stacked ranker")


class Result(BaseModel):
    id: str | None = None
    known_words: int | None = Field(
        None,
        description="different words of the text that the model knows; with 0 the labels are merely the most frequent "
        "ones. Absent for models of vectors",
    )
    labels: list[Suggestion]


class PredictAnswer(BaseModel):
    model: str
    results: list[Result]


class ErrorBody(BaseModel):
    code: str
    message: str
    field: str | None


class ErrorAnswer(BaseModel):
    error: ErrorBody


class LabelHit(BaseModel):
    label: str
    text: str
    uri: str | None = Field(None, description="the label's URI, if its vocabulary has URIs")
    training_count: int


class LabelsAnswer(BaseModel):
    model: str
    search: str
    total: int = Field(description="labels that match")
    labels: list[LabelHit]


class LabelCluster(BaseModel):
    cluster: int
    edge_score: float
    stage1: bool = Field(description="the cluster the label had before the edges were learned")
    words: list[str]


class NearLabel(BaseModel):
    label: str
    text: str
    similarity: float = Field(description="cosine between the classifiers")


class LabelAnswer(BaseModel):
    model: str
    label: str
    text: str
    training_count: int
    stage1_cluster: int | None
    clusters_total: int
    clusters: list[LabelCluster] = Field(description="the strongest 50")
    nearest: list[NearLabel]


class ClusterLabel(BaseModel):
    label: str
    text: str
    edge_score: float
    stage1: bool
    training_count: int


class ClusterAnswer(BaseModel):
    model: str
    cluster: int
    words: list[str]
    total: int = Field(description="edges of the cluster")
    stage1_total: int = Field(description="labels that stage 1 had put here")
    labels: list[ClusterLabel]


class PathCluster(BaseModel):
    cluster: int
    score: float = Field(description="s_c, equation (1)")
    words: list[str]


class Edge(BaseModel):
    cluster: int
    label: str
    edge_score: float
    weight: float = Field(description="cluster score times edge score")
    wins: bool


class PathsAnswer(BaseModel):
    model: str
    clusters: list[PathCluster] = Field(description="the beam, best first")
    labels: list[Suggestion]
    edges: list[Edge] = Field(description="every edge from the beam to these labels")


class ModelFacts(BaseModel):
    name: str
    default: bool
    labels: int
    clusters: int | None
    edges: int | None
    training_rows: int | None
    data: str
    parts: list[str] = Field(description="the parts of a score that explain adds")
    threshold: bool = Field(description="whether scores are probabilities, so that a threshold can be given")
    explore: bool = Field(description="whether labels, clusters and paths can be inspected")
    loaded: str = Field(description="time, UTC")


class ModelsAnswer(BaseModel):
    models: list[ModelFacts]
    feedback: bool = Field(description="whether accepted and rejected labels can be stored: POST /v1/feedback")


class ModelAnswer(ModelFacts):
    settings: dict[str, Any]
    dataset: dict[str, Any]
    validation: dict[str, Any]
    quality: dict[str, Any] | None = Field(
        description="what the model is worth: metrics next to baselines on the same rows, and the calibration error; "
        "null where it was not measured"
    )
    versions: dict[str, str]
    limits: dict[str, float]


class SharedLabel(BaseModel):
    label: str
    text: str
    clusters: int


class ClusterSize(BaseModel):
    cluster: int
    labels: int
    words: list[str]


class IndexAnswer(BaseModel):
    model: str
    labels: int
    clusters: int
    edges: int
    labels_without_edges: int
    learned: bool
    assigned: float = Field(description="edge score above which a label counts as assigned to a cluster")
    stage1_edges_kept: float
    clusters_per_label_by_decile: list[float] = Field(description="most popular labels first")
    edge_score_quantiles: dict[str, float]
    edge_score_histogram: list[int] = Field(description="edges per twentieth of 0..1")
    most_shared: list[SharedLabel]
    largest_clusters: list[ClusterSize] = Field(description="by labels assigned")


class ReloadAnswer(BaseModel):
    reloaded: list[str]


class FeedbackAnswer(BaseModel):
    stored: bool


class Document(BaseModel):
    """A text of Annif's suggest-batch. Annif allows more fields, such as metadata; they are not read."""

    model_config = ConfigDict(strict=True)
    text: str
    document_id: str | None = None


class DocumentsRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"documents": [{"text": TEXT, "document_id": "a"}]}],
        }
    )
    documents: Annotated[list[Document], Field(fail_fast=True)]


class AnnifSuggestion(BaseModel):
    uri: str = Field(description="of the vocabulary; the label's id if that is a URI; otherwise urn:elias:label:ID")
    label: str = Field(description="the label's text, or its id if it has none")
    notation: str | None
    score: float


class AnnifResults(BaseModel):
    results: list[AnnifSuggestion]


class DocumentResults(AnnifResults):
    document_id: str | None


class AnnifBackend(BaseModel):
    backend_id: str


class AnnifVocabulary(BaseModel):
    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class AnnifProject(BaseModel):
    project_id: str
    name: str
    language: str = Field(description='of the label texts; "und" if it is not known')
    backend: AnnifBackend
    vocab: AnnifVocabulary
    vocab_language: str
    is_trained: bool
    modification_time: str = Field(description="when the model was opened, UTC")


class AnnifProjects(BaseModel):
    projects: list[AnnifProject]


class Problem(BaseModel):
    type: str
    title: str
    status: int
    detail: str


class Status(BaseModel):
    status: str
