"""A question that parsed is held against the limits and against the model, before it may wait in the queue."""

from __future__ import annotations

from .answers import Ask
from .errors import ServiceError, invalid, shown
from .limits import Limits
from .models import Served
from .schemas import PredictRequest


def checked(asked: PredictRequest, served: Served, limits: Limits) -> Ask:
    """What to compute for it; or a 413 or 422 that says what to change."""
    n_texts = len(asked.texts)
    if n_texts > limits.texts:
        message = f"{n_texts:,} texts; send at most {limits.texts:,} in a request"
        raise ServiceError(413, message, field="texts")
    for number, text in enumerate(asked.texts):
        check_text(text, limits, f"texts.{number}")
    if asked.ids is not None and len(asked.ids) != n_texts:
        raise invalid(f"{len(asked.ids):,} ids for {n_texts:,} texts; give one for each, or none at all", "ids")
    if asked.k > limits.k:
        raise invalid(f"k={asked.k}: ask for at most {limits.k:,} labels", "k")
    k = min(asked.k, len(served.model.labels))
    if not asked.stream and n_texts * k > limits.answers:
        message = f'{n_texts:,} texts with {k:,} labels each are too many for one answer; ask with "stream": true'
        raise invalid(message, "stream")
    if asked.threshold is not None and served.threshold_refused is not None:
        raise invalid(served.threshold_refused, "threshold")
    return Ask(k, asked.explain, asked.threshold, checked_labels(asked, served, limits))


def check_text(text: str, limits: Limits, field: str) -> None:
    if len(text) > limits.text_length:
        message = f"a text of {len(text):,} characters; at most {limits.text_length:,}, so cut it or send it in parts"
        raise ServiceError(413, message, field=field)


def checked_labels(asked: PredictRequest, served: Served, limits: Limits) -> tuple[str, ...] | None:
    if asked.labels is None:
        return None
    n_labels = len(asked.labels)
    if n_labels > limits.labels:
        raise ServiceError(413, f"{n_labels:,} labels named; at most {limits.labels:,}", field="labels")
    if n_labels * len(asked.texts) > limits.pairs:
        message = f"{len(asked.texts):,} texts with {n_labels:,} labels each; at most {limits.pairs:,} pairs"
        raise ServiceError(413, message, field="labels")
    known = served.model.labels.number_of
    for number, label in enumerate(asked.labels):
        if label not in known:
            message = f'unknown label "{shown(label)}"; find it with GET /v1/labels?search='
            raise invalid(message, f"labels.{number}")
    return tuple(asked.labels)
