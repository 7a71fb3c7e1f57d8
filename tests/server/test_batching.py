"""The compute threads: they survive failures, release replaced models, and end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elias.core.predictions import Predictions
from elias.server.admission import Limits
from elias.server.batching import THREADS, Batcher
from elias.server.errors import ServiceError
from elias.server.metrics import Metrics
from elias.server.queue import Job, PredictOptions


class Panic(BaseException):
    """As extensions raise it that are not written in Python."""


class Echo:
    """A model that answers with its one label, or breaks."""

    labels = SimpleNamespace(texts=[""], uris=None)

    def predict(self, texts: Sequence[str], k: int, **_: Any) -> Predictions:
        if "panic" in texts:
            raise Panic
        if "wrong" in texts:
            raise ValueError("wrong")
        zeros = np.zeros((len(texts), 1), dtype=np.int32)
        return Predictions(labels=zeros, scores=zeros.astype(np.float32), label_ids=["only"])


def served(model: Echo) -> Any:
    return SimpleNamespace(name="echo", model=model)


async def asked(batcher: Batcher, text: str, model: Echo) -> list[str]:
    return await batcher.run(Job(served(model), PredictOptions(k=1), [text], None, lambda: False))


def with_batcher(work: Any) -> None:
    async def all_of_it() -> None:
        batcher = Batcher(Limits(answer_seconds=20), Metrics())
        batcher.start()
        try:
            await work(batcher)
        finally:
            batcher.close()
            batcher.join()
        assert not any(thread.is_alive() for thread in batcher._threads)

    with ThreadPoolExecutor(1) as own:  # the thread of the tests may have a loop already, the browser's
        own.submit(lambda: asyncio.run(all_of_it())).result()


def test_no_failure_ends_a_thread() -> None:
    async def work(batcher: Batcher) -> None:
        for _ in range(2 * THREADS):
            with pytest.raises(RuntimeError, match="Panic"):
                await asked(batcher, "panic", Echo())
            with pytest.raises(ValueError, match="wrong"):
                await asked(batcher, "wrong", Echo())
        assert "only" in (await asked(batcher, "a text", Echo()))[0]
        assert batcher._batches_under_way == 0

    with_batcher(work)


def test_a_replaced_model_is_released() -> None:
    async def work(batcher: Batcher) -> None:
        model = Echo()
        seen = weakref.ref(model)
        await asked(batcher, "a text", model)
        del model
        for _ in range(100):
            gc.collect()
            if seen() is None:
                break
            await asyncio.sleep(0.02)
        assert seen() is None

    with_batcher(work)


def test_a_closed_batcher_refuses_jobs() -> None:
    async def work(batcher: Batcher) -> None:
        batcher.close()
        with pytest.raises(ServiceError, match="shutting down"):
            await asked(batcher, "a text", Echo())

    with_batcher(work)


def test_a_failure_reaches_only_its_own_batch() -> None:
    async def work(batcher: Batcher) -> None:
        texts = ["a text", "wrong", "a text"] * 50
        found = await asyncio.gather(*(asked(batcher, text, Echo()) for text in texts), return_exceptions=True)
        assert [isinstance(answer, ValueError) for answer in found] == [text == "wrong" for text in texts]
        assert batcher._queue.texts == 0

    with_batcher(work)
