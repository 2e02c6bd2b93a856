"""The client of a request, and the models that the client may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gateway.calls.admission.facts import RequestFacts
from gateway.calls.route import Route
from gateway.calls.stack import Stack
from gateway.core.caller import ANONYMOUS, Caller
from gateway.core.errors import InvalidValue, ModelNotFound
from metatemplate.values.frozen import EMPTY_MAPPING
from metatemplate.values.words import quoted, suggest

SESSION = b"x-session-id"
"""The header that names a session for ``delivery.balance: sticky``, as in other model routers."""
RUN_HEADER, ROW_HEADER = b"x-gateway-run", b"x-gateway-row"
"""The headers with the client's name for its run, and with the id of a row in the run, for recordings and replay."""
MAX_ROW = 256
"""The maximum number of characters in the id of a row."""
RUN_NAME = re.compile("[A-Za-z0-9._-]{1,64}")


def base_url(stack: Stack, facts: RequestFacts) -> str:
    """Return the ``base_url`` for clients, with the host that this client has used and the path of the application."""
    return f"{stack.snapshot.server.scheme}://{facts.header('host')}{facts.root_path}/v1"


def base_url_hint(stack: Stack, facts: RequestFacts) -> str:
    """Return the sentence about a client's ``base_url``."""
    return f"a client's base_url must end in one /v1, such as {base_url(stack, facts)}; the client adds the rest"


def authenticate(stack: Stack, facts: RequestFacts) -> Caller:
    """Return the client that has sent a request, which ``identify`` finds and whose path ``check_path`` checks."""
    caller = identify(stack, facts)
    if facts.model is not None:
        check_path(stack, caller, facts, facts.model)
    return caller


def identify(stack: Stack, facts: RequestFacts, trace: Mapping[str, str] = EMPTY_MAPPING) -> Caller:
    """Return the client that has sent a request. ``trace``: the headers with which its upstream requests continue it.

    Raises ``InvalidApiKey`` for a missing or invalid key, and ``InvalidValue`` for an invalid name of a run or id of a
    row.
    """
    caller, headers = facts.caller, facts.headers
    if caller is None:
        caller = stack.keyring.authenticate(facts.header("authorization")) if stack.keyring.needed else ANONYMOUS
    if SESSION in headers:
        caller = replace(caller, session=headers[SESSION].decode("latin-1"))
    if RUN_HEADER in headers:
        caller = replace(caller, run=checked_run(headers[RUN_HEADER].decode("latin-1"), "header x-gateway-run"))
    if ROW_HEADER in headers:
        row = headers[ROW_HEADER].decode("utf-8", "replace")
        if not is_row_id(row):
            raise InvalidValue(f"the header x-gateway-row must have at most {MAX_ROW} printable characters")
        caller = replace(caller, row=row)
    if trace:
        caller = replace(caller, trace=trace)
    return caller


def check_path(stack: Stack, caller: Caller, facts: RequestFacts, name: str) -> None:
    """Raise ``ModelNotFound`` if the beginning of the path names no model that the client may use."""
    if name in stack.routes and caller.may_use(name):
        return
    what = f"no model {quoted(name)}{suggest(name, visible_models(stack, caller))}; the path begins with this name"
    if name.rpartition("/")[2] == "v1":
        what = "the path has /v1 twice"
    raise ModelNotFound(f"{what}; {base_url_hint(stack, facts)}", param="model")


def checked_run(name: str, place: str) -> str:
    """Return the name of a run. Raises ``InvalidValue`` for an invalid name. ``place``: where the request has it."""
    if not RUN_NAME.fullmatch(name):
        allowed = 'use 1 to 64 ASCII letters, digits and ".", "_", "-"'
        raise InvalidValue(f"{quoted(name)} is not a valid name of a run ({place}); {allowed}")
    return name


def is_row_id(text: str) -> bool:
    """Return whether a text may be the id of a row."""
    return len(text) <= MAX_ROW and text.isprintable()


def visible_models(stack: Stack, caller: Caller) -> list[str]:
    """Return the names of the models that the key allows."""
    return [name for name in stack.routes if caller.may_use(name)]


def authorized_route(stack: Stack, caller: Caller, name: str) -> Route:
    """Return the route of a model. Raises the same ``ModelNotFound`` for an unknown model and for a forbidden model.

    The error suggests only models that the key allows, and names the key if it does not allow all models.
    """
    route = stack.routes.get(name)
    if route is None or not caller.may_use(name):
        names = visible_models(stack, caller)
        if caller.models is None:
            message = f"no model {quoted(name)}{suggest(name, names)}; GET /v1/models lists the models"
        else:
            message = (
                f"this key may use no model {quoted(name)}{suggest(name, names, 'it may use')}; use one of its models "
                "(GET /v1/models lists them), or ask the operator for a key that allows it"
            )
        raise ModelNotFound(message, param="model")
    return route


def only_model(stack: Stack, caller: Caller) -> str:
    """Return the only model that the key allows. Raises ``InvalidValue`` if the key allows another number of models."""
    names = visible_models(stack, caller)
    if len(names) != 1:
        raise InvalidValue(
            "this request names no model; name one of the models in the path (/MODEL/tokenize) or in the field model",
            param="model",
        )
    return names[0]
