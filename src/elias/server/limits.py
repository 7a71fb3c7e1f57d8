"""What a request may ask for, and how much the service keeps waiting."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ..core.errors import SettingsError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`elias serve --limit texts=500` changes one."""

    texts: int = 10_000  # a request
    text_length: int = 200_000  # characters
    body_bytes: int = 16 << 20
    k: int = 1000
    labels: int = 10_000  # that a request may name
    answers: int = 200_000  # texts times k in one answer; a stream may hold more
    pairs: int = 10_000_000  # texts times named labels
    waiting_requests: int = 256  # waiting or being computed; the next one is answered 503
    waiting_texts: int = 8192  # of which one request counts for a quarter at most: it is computed in pieces
    waiting_bytes: int = 128 << 20  # of bodies
    connections: int = 1024
    batch: int = 256  # texts computed at a time
    batch_characters: int = 1_000_000
    header_seconds: float = 10.0  # a client may take to send its headers
    body_seconds: float = 20.0
    answer_seconds: float = 60.0  # for an answer, or a piece of a stream
    drain_seconds: float = 30.0  # after SIGTERM

    def updated(self, changes: dict[str, str]) -> Limits:
        """The same with `name: value` pairs from the command line."""
        known = {item.name: type(getattr(self, item.name)) for item in fields(self)}
        values = {}
        for name, text in changes.items():
            if name not in known:
                raise SettingsError(f"--limit {name}: there is no such limit{did_you_mean(name, known)}")
            try:
                values[name] = known[name](text)
            except ValueError:
                raise SettingsError(f'--limit {name}={text}: "{text}" is not a number') from None
            if not values[name] > 0:
                raise SettingsError(f"--limit {name}={text}: must be above 0")
        return replace(self, **values)
