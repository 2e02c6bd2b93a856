"""``/`` and ``/viewer``: the models with their templates and targets, and commands for a first request."""

from __future__ import annotations

from functools import cache
from typing import Any

from gateway.calls.route import Route
from gateway.calls.service import GatewayState
from gateway.edge.about.commands import curl_command, python_command
from gateway.edge.about.openapi import without_bodies
from gateway.viewer.page import Page, PageRequest
from gateway.viewer.page_threads import PageThreads


@cache
def _paths(endpoints: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of the table of paths."""
    return [
        {"method": method.upper(), "path": path, "summary": operation["summary"]}
        for path, operations in without_bodies(endpoints)["paths"].items()
        for method, operation in operations.items()
        if path != "/favicon.ico"
    ]


class HomePage:
    """The page of the models."""

    def __init__(self, state: GatewayState, _: PageThreads) -> None:
        self._state = state
        self._endpoints = state.stack.snapshot.server.endpoints
        """The served endpoints. They stay the same until a restart."""

    async def page(self, asked: PageRequest) -> Page:
        """Return the page. A visitor who has not signed in sees no model."""
        stack, caller = self._state.stack, asked.visitor.caller
        status = await self._state.status()
        targets = {model["name"]: model["targets"] for model in status["models"]}
        models = [
            _model(route, targets.get(name, []))
            for name, route in stack.routes.items()
            if caller is not None and caller.may_use(name)
        ]
        name = models[0]["name"] if models else "MODEL"
        return Page(
            "home.html",
            {
                "base_url": asked.base_url,
                "models": models,
                "needs_key": caller is None,
                "has_chat": not self._endpoints or "chat" in self._endpoints,
                "curl": curl_command(asked.base_url, name, has_keys=stack.keyring.needed),
                "python": python_command(asked.base_url, name, has_keys=stack.keyring.needed),
                "mount": asked.root.removesuffix("/viewer"),
                "paths": _paths(self._endpoints),
            },
        )


def _model(route: Route, targets: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": route.spec.name,
        "description": route.spec.description,
        "template": route.template_id,
        "policy": route.spec.policy.name,
        "context_length": route.context_length,
        "targets": targets,
    }
