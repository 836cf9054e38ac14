"""Serving of the routes that FastAPI declares and documents.

FastAPI finds a route through the routers that include it, and solves every dependency with all that one could have: for
a read of a page this took longer than the read. Here the routes are one list, and each dependency is a call. Endpoints
and dependencies are asynchronous, take parameters, the request and a `BodyReader`, and endpoints return responses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from copy import copy
from typing import Any, NamedTuple, cast

from fastapi import FastAPI, Request
from fastapi._compat import field_annotation_is_sequence, get_missing_field_error
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from scratchbus.http import problems
from scratchbus.http.bodies import BodyReader, reader_of
from scratchbus.http.problems import Refusal


class Routes:
    """The routes of an application, in their order."""

    def __init__(self, app: FastAPI) -> None:
        self._declared = app
        self._routes = [_Route.of(each) for each in iter_route_contexts(app.routes) if each.path is not None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection; the bus a request uses is in `state["uses"]` until its answer is sent."""
        if scope["type"] == "http":
            with ExitStack() as uses:
                scope["state"]["uses"] = uses
                await self._answer(scope, receive, send)
        else:
            await self._declared(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        for route in self._routes:
            if route.methods is None or method in route.methods:
                found = route.pattern.match(path)
                if found is not None:
                    scope.get("found", {})["route"] = route.path  # for the metrics
                    if route.call is None:
                        await self._declared(scope, receive, send)
                        return
                    scope.update(app=self._declared, path_params=found.groupdict(), route=route)
                    await self._serve(route.call, scope, receive, send)
                    return
        await problems.refusal(self._missing(scope))(scope, receive, send)

    def _missing(self, scope: Scope) -> Refusal:
        """Return the refusal of a request that no route serves: of its method, of a part of its path, or of both."""
        path = scope["path"]
        methods = {each for route in self._routes if route.pattern.match(path) for each in route.methods or ()}
        if methods:
            allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
            detail = f"{scope['method']} is not possible here; use one of: {allowed}"
            return Refusal(405, "method-not-allowed", detail, {"Allow": allowed})
        malformed = filter(None, (route.malformed_part(path) for route in self._routes))
        return problems.nothing_here(next(malformed, None))

    async def _serve(self, call: _Call, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            values, errors = await call.arguments(request)
            if errors:
                raise RequestValidationError(errors)
            answer = await call.function(**values)
        except Exception as error:
            answer = await problems.answer_to(request, error)
        try:
            await answer(scope, receive, send)
        except Refusal:
            raise
        except Exception as error:
            await problems.answer_to(request, error)  # to log it: the answer has begun
            raise


class _Parameter(NamedTuple):
    """A parameter of a request: its location and its name there."""

    attribute: str
    alias: str
    field: Any
    location: tuple[str, str]
    is_list: bool
    is_required: bool
    default: Any

    @classmethod
    def all_of(cls, dependant: Dependant) -> list[_Parameter]:
        """Return the parameters that a dependant takes itself."""
        attributes = (
            ("path_params", dependant.path_params),
            ("query_params", dependant.query_params),
            ("headers", dependant.header_params),
        )
        return [cls._of(attribute, field) for attribute, fields in attributes for field in fields]

    @classmethod
    def _of(cls, attribute: str, field: Any) -> _Parameter:
        info = field.field_info
        is_list, is_required = field_annotation_is_sequence(info.annotation), info.is_required()
        default = None if is_required else field.default
        return cls(attribute, field.alias, field, (info.in_.value, field.alias), is_list, is_required, default)

    def read(self, request: Request) -> tuple[Any, list[Any]]:
        """Return its value, and the errors in it."""
        values = getattr(request, self.attribute)
        if self.alias not in values:
            if self.is_required:
                return None, [get_missing_field_error(loc=self.location)]
            return copy(self.default), []
        if self.is_list:
            value = values.getlist(self.alias)
        elif self.attribute == "headers":  # a repeated one is a list with commas (RFC 9110, 5.3)
            value = ", ".join(values.getlist(self.alias))
        else:
            value = values[self.alias]
        found: tuple[Any, list[Any]] = self.field.validate(value, {}, loc=self.location)
        return found


class _Call(NamedTuple):
    """A function that is called for a request: an endpoint, or a dependency of one."""

    function: Callable[..., Awaitable[Any]]
    dependencies: list[tuple[str | None, _Call]]
    parameters: list[_Parameter]
    request_name: str | None
    body: tuple[str, BodyReader] | None

    @classmethod
    def of(cls, dependant: Dependant) -> _Call:
        """Return the call that a dependant describes."""
        others = [each for each in dependant.dependencies if not isinstance(each.call, BodyReader)]
        calls = [(each.name, cls.of(each)) for each in others]
        function = cast(Callable[..., Awaitable[Any]], dependant.call)
        return cls(function, calls, _Parameter.all_of(dependant), dependant.request_param_name, reader_of(dependant))

    def all_parameters(self) -> list[_Parameter]:
        """Return its parameters, and those of its dependencies."""
        return [*self.parameters, *(each for _, call in self.dependencies for each in call.all_parameters())]

    async def arguments(self, request: Request) -> tuple[dict[str, Any], list[Any]]:
        """Return its arguments, and the errors in the parameters of the request."""
        values: dict[str, Any] = {}
        errors: list[Any] = []
        for name, call in self.dependencies:
            call_arguments, new_errors = await call.arguments(request)
            errors += new_errors
            if not new_errors:
                found = await call.function(**call_arguments)
                if name is not None:
                    values[name] = found
        for parameter in self.parameters:
            value, new_errors = parameter.read(request)
            values[parameter.field.name] = value
            errors += new_errors
        if self.request_name is not None:
            values[self.request_name] = request
        if self.body is not None and not errors:
            name, read = self.body
            values[name] = await read(request)
        return values, errors


class _Route(NamedTuple):
    """A route: its pattern, that without the kinds of ids, and its call; None if it is a whole application.

    `query_parameters` says of each parameter in the query whether it may be repeated. `headers` are the names of the
    headers that it reads.
    """

    pattern: Any
    any_pattern: Any
    methods: frozenset[str] | None
    call: _Call | None
    path: str
    name: str
    query_parameters: dict[str, bool]
    headers: frozenset[str]

    @classmethod
    def of(cls, route: RouteContext) -> _Route:
        """Return a route that is declared."""
        methods = None if route.methods is None else frozenset(route.methods)
        any_pattern, *_ = compile_path(str(route.path_format))
        dependant: Dependant | None = getattr(route, "dependant", None)
        call = None if dependant is None else _Call.of(dependant)
        parameters = [] if call is None else call.all_parameters()
        in_query = {each.alias: each.is_list for each in parameters if each.attribute == "query_params"}
        headers = frozenset(each.alias.lower() for each in parameters if each.attribute == "headers")
        return cls(route.path_regex, any_pattern, methods, call, str(route.path), str(route.name), in_query, headers)

    def malformed_part(self, path: str) -> str | None:
        """Return what is wrong with a part of a path, such as an id; None if the path is not like that of the route."""
        found = self.any_pattern.match(path)
        if found is None or self.call is None:
            return None
        request = Request({"type": "http", "path_params": found.groupdict()})
        for parameter in self.call.parameters:
            if parameter.attribute == "path_params" and (errors := parameter.read(request)[1]):
                return f"{parameter.alias}: {problems.explanation_of(errors[0])}"
        return None
