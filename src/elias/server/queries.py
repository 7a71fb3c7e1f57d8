"""A query parameter that a route does not know is refused, as an unknown field is: `?serach=` would find everything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from ..core.errors import did_you_mean
from .errors import invalid, shown


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, known = super().get_route_handler(), {field.alias for field in self.dependant.query_params}

        async def handle_known(request: Request) -> Response:
            if request.scope["query_string"]:
                _check(request, known)
            return await handle(request)

        return handle_known


def _check(request: Request, known: set[str]) -> None:
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            hint = did_you_mean(name[:60], known) or (f"; it takes {', '.join(sorted(known))}" if known else "")
            raise invalid(f'unknown parameter "{shown(name)}"{hint}', shown(name))
        if given.count(name) > 1:
            raise invalid(f'parameter "{name}" is given {given.count(name)} times; once is enough', name)
