"""``/viewer/recordings``: the recorded calls, the latest first, and the page of one call.

All reading happens in threads, on connections that cannot write.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

from gateway.calls.service import GatewayState
from gateway.core.errors import InvalidValue
from gateway.storage.recordings import OWNER, RecordingFile, is_interrupted, open_recording
from gateway.viewer.page import Page, PageRequest, Visitor
from gateway.viewer.page_threads import PageThreads
from gateway.viewer.recordings.call_view import call_values
from gateway.viewer.recordings.list import LIST_FILTERS, ROWS, call_link, list_values, time_text

BUSY_SECONDS = 1.0
"""How long a page waits while another process has locked the file."""
READ_SECONDS = 5.0
"""How long a page may read."""
NO_FILE = "No call has been recorded yet: the file recordings.path does not exist. The first recorded call creates it."
TOO_LONG = f"reading took more than {READ_SECONDS:g} seconds; use other filters"


class RecordingPages:
    """The list of calls, and the page of one call."""

    def __init__(self, state: GatewayState, threads: PageThreads) -> None:
        self._state = state
        self._threads = threads

    async def page(self, asked: PageRequest) -> Page:
        """Return the list, or one call: ``/recordings/REQUEST_ID``."""
        visitor, name = asked.visitor, unquote(asked.path.removeprefix("/recordings").strip("/"))
        path = self._state.stack.snapshot.recordings.path
        template = "recordings/call.html" if name else "recordings/list.html"
        if not visitor.may_read or visitor.caller is None or path is None:
            return Page(template, {"problem": visitor.problem})
        try:
            if name:
                return await self._threads.run(visitor.key, _call_page, path, name, asked)
            models = [one for one in self._state.stack.routes if visitor.caller.may_use(one)]
            return Page(template, await self._threads.run(visitor.key, _list_page, path, asked, models))
        except FileNotFoundError:
            return Page(template, {"problem": NO_FILE}, 404 if name else 200)
        except (InvalidValue, sqlite3.Error) as error:
            reason = TOO_LONG if is_interrupted(error) else str(error).replace(str(path), path.name)
            return Page(template, {"problem": f"The recordings cannot be read now: {reason}"})


def _reading(path: Path) -> closing[RecordingFile]:
    """Open the file for a page. Raises ``FileNotFoundError`` if no call has been recorded yet."""
    if not path.exists():
        raise FileNotFoundError(path)
    return closing(open_recording(path, BUSY_SECONDS, READ_SECONDS))


def _own(visitor: Visitor) -> dict[str, str]:
    """Return the filter for the calls that a visitor may see: with client keys, those of the own key."""
    return {OWNER: visitor.caller.key} if visitor.has_keys and visitor.caller is not None else {}


def _chosen(asked: PageRequest, own: dict[str, str]) -> dict[str, str]:
    """Return the filters of the list that the query names."""
    return {name: asked.query[name] for name in LIST_FILTERS if asked.query.get(name) and not (own and name == "key")}


def _list_page(path: Path, asked: PageRequest, models: list[str]) -> dict[str, Any]:
    own = _own(asked.visitor)
    with _reading(path) as file:
        return list_values(file, _chosen(asked, own), own, _number(asked.query.get("before", "")), models)


def _call_page(path: Path, name: str, asked: PageRequest) -> Page:
    """Return the page of a call. Calls of other clients are not found."""
    own = _own(asked.visitor)
    chosen = _chosen(asked, own)
    with _reading(path) as file:
        wanted = _number(asked.query.get("id", ""))
        found = [] if wanted else file.find_calls({"request_id": name, **own}, last=1)
        if not found and (number := wanted or _number(name)):
            found = file.find_calls({"id": str(number), **own}, last=1)
        if not found:
            problem = f"No recorded call has the id {name}. It may have been removed because of its age."
            return Page("recordings/call.html", {"problem": problem}, 404)
        call = found[0]
        same = file.find_calls({"request_id": call["request_id"], **own}, last=ROWS, columns="id, time")
        beside = [
            file.find_calls({**chosen, **own}, last=1, columns="id", **{side: call["id"]})
            for side in ("after", "before")
        ]
        values = call_values(dict(call), [dict(one) for one in file.exchanges_of(call["id"])])
    newer, older = [call_link(side[0]["id"], chosen) if side else "" for side in beside]
    links = {"newer": newer, "older": older, "list": "?" + urlencode(chosen) if chosen else ""}
    others = [{"id": one["id"], "time": time_text(one["time"])} for one in same if one["id"] != call["id"]]
    return Page("recordings/call.html", {"problem": "", "others": others, **links, **values})


def _number(text: str) -> int | None:
    """Return an SQLite integer, or None for another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
