"""Finds markers in texts of the client, and applies the marker policy, so that a client cannot forge a turn.

The search uses the segments of a rendered prompt (``docs/spec/reliability.md`` 3.4). A marker that lies wholly or
partly in text of the client is forged. After ``escape`` and ``strip``, the prompt is searched again, until it contains
no forged marker.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from metatemplate.errors import ForgedMarker, InvalidInput
from metatemplate.markers.marker_set import JOINER, Hit, MarkerKind, MarkerSet, fold
from metatemplate.values.frozen import dataclass
from metatemplate.values.json_values import MAX_DEPTH, deeper_than, values_with_keys
from metatemplate.values.prompt import MarkerAction, Notice, Segment
from metatemplate.values.words import quoted

MAX_PASSES = 16
"""The maximum number of searches of one prompt. If the last search still finds a marker, the request is refused."""
MAX_MARKERS = 2_000
"""A request with more forged markers is refused. A policy that only counts markers stops counting here."""
EDITS = ("escape", "strip")
"""The actions that change a prompt's text."""
CHANGES = (*EDITS, "token_ids")
"""The actions that change a request."""
STRUCTURAL_KEYS = frozenset({"role", "name"})
"""Keys whose values are names. A marker in a name is refused, because a changed name would mean something else. The
``name`` of a message is text, like its content."""
MESSAGE_NAME = re.compile(r"messages\[\d+\]\.name")
"""Matches the path of a message's ``name``."""
OUTCOMES: Mapping[MarkerAction, str] = {
    "escape": "escaped",
    "strip": "stripped",
    "report": "reported",
    "token_ids": "as_token_ids",
}
"""Action → the last part of the name of its notice. ``allow`` gives no notice, and ``reject`` gives an error."""


class MarkerCounts:
    """The forged markers of one request: for each kind, their number and the origin of the first marker."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[MarkerKind, tuple[int, str]] = {}

    def add(self, kind: MarkerKind, origin: str) -> None:
        """Count one marker."""
        number, first = self.found.get(kind, (0, origin))
        self.found[kind] = number + 1, first

    def add_larger(self, *counts: MarkerCounts) -> None:
        """Add the numbers of several searches of one text: for each kind, the largest number."""
        for kind in dict.fromkeys([kind for one in counts for kind in one.found]):
            number, first = self.found.get(kind, (0, ""))
            more, origin = max(one.found.get(kind, (0, "")) for one in counts)
            self.found[kind] = number + more, first or origin

    def of(self, kind: MarkerKind) -> int:
        """Return the number of markers of one kind."""
        return self.found.get(kind, (0, ""))[0]


@dataclass(frozen=True, slots=True)
class SafeSegments:
    """The segments of a prompt to which the marker policy has been applied."""

    segments: tuple[Segment, ...]
    breaks: tuple[int, ...] = ()
    """Offsets in the text at which the tokenizer must begin a new token (``token_ids``)."""


class MarkerRule:
    """The policy of one model for markers."""

    def __init__(
        self,
        markers: MarkerSet,
        token_like: MarkerAction = "escape",
        text_like: MarkerAction = "escape",
        folded: MarkerSet | None = None,
    ) -> None:
        """``token_like``, ``text_like``: the action for each kind of marker.

        ``folded``: the markers after ``fold``. None if the tokenizer does not normalize texts.
        """
        self.markers = markers
        self.folded = folded
        self.searched = folded or markers
        """The markers as the tokenizer reads them."""
        self.form: Callable[[str], str] = str if folded is None else fold
        """Changes a text before it is searched."""
        self.may_occur = markers.may_occur
        actions: dict[MarkerKind, MarkerAction] = {"token_like": token_like, "text_like": text_like}
        if folded is not None:  # the tokenizer may undo a change
            actions |= {kind: "reject" for kind, action in actions.items() if action in CHANGES}
        self.actions: Mapping[MarkerKind, MarkerAction] = actions
        self.enforced = [kind for kind, action in actions.items() if action not in ("allow", "report")]
        """The kinds of markers that the policy changes or refuses."""
        self.changes = bool(self.enforced)
        """False if the policy never changes or refuses a request."""

    def apply(self, segments: Sequence[Segment], counts: MarkerCounts) -> SafeSegments:
        """Apply the policy to the segments of a prompt. Raises ``ForgedMarker`` to refuse the request."""
        pieces = tuple(segments)
        for number in range(MAX_PASSES):
            forged = self._forged(pieces, counts)
            for hit, place in forged:
                action = self.actions[hit.kind]
                if action == "reject":
                    marker = "".join([piece.text for piece in pieces])[hit.start : hit.end]
                    raise refusal(pieces[place].origin, f"{quoted(marker)}, a marker that separates")
                if action in CHANGES and counts.of(hit.kind) > MAX_MARKERS:
                    raise refusal(pieces[place].origin, f"more than {MAX_MARKERS} markers that separate")
                if number == 0 or action in EDITS:
                    counts.add(hit.kind, pieces[place].origin)
            edits = [(hit, place) for hit, place in forged if self.actions[hit.kind] in EDITS]
            if not edits:
                starts = _starts(pieces)
                kept = [(hit, place) for hit, place in forged if self.actions[hit.kind] == "token_ids"]
                return SafeSegments(pieces, tuple(sorted({_break(hit, starts[place]) for hit, place in kept})))
            pieces = self._edited(pieces, edits)
        raise refusal(pieces[edits[0][1]].origin)

    def apply_to_json(self, value: Any, path: str, counts: MarkerCounts, key: str = "") -> Any:
        """Apply the policy to every text in a JSON value, for targets that accept messages.

        The texts of a list of content parts are searched as one text. The JSON in ``arguments`` is searched as text and
        parsed, because some templates parse it and others write the text. Raises ``ForgedMarker`` to refuse
        the request, such as for a marker in the name of a tool.
        """
        if isinstance(value, str):
            return self._json_text(value, path, counts, key)
        if isinstance(value, Mapping):
            for name in value:
                self._check_name(name, path, counts)
            return {
                name: self.apply_to_json(inner, f"{path}.{name}" if name.isidentifier() else path, counts, name)
                for name, inner in value.items()
            }
        if not isinstance(value, (list, tuple)):
            return value
        places = [at for at, one in enumerate(value) if isinstance(one, Mapping) and isinstance(one.get("text"), str)]
        if key != "content" or not places:
            return [self.apply_to_json(one, f"{path}[{at}]", counts) for at, one in enumerate(value)]
        texts = [Segment(value[at]["text"], "", f"{path}[{at}].text", False) for at in places]
        safe = dict(zip(places, self.apply(texts, counts).segments, strict=True))
        return [{**one, "text": safe[at].text} if at in safe else one for at, one in enumerate(value)]

    def notices(self, counts: MarkerCounts) -> tuple[Notice, ...]:
        """Return a notice for each kind of marker that was found, except for kinds that the policy allows."""
        return tuple(
            [
                Notice(f"markers_{OUTCOMES[self.actions[kind]]}", f"{kind}={number}, first in {origin}")
                for kind, (number, origin) in counts.found.items()
                if self.actions[kind] in OUTCOMES
            ]
        )

    def actions_taken(self, counts: MarkerCounts) -> tuple[tuple[str, int], ...]:
        """Return the pairs (action, number of markers) for the metric."""
        return tuple([(self.actions[kind], number) for kind, (number, _) in counts.found.items()])

    def _json_text(self, text: str, path: str, counts: MarkerCounts, key: str) -> str:
        if key in STRUCTURAL_KEYS and not MESSAGE_NAME.fullmatch(path):
            self._check_name(text, path, counts)
            return text
        if key == "arguments":
            parsed = _parsed(text)
            if isinstance(parsed, (dict, list)):
                if deeper_than(parsed, MAX_DEPTH):
                    raise InvalidInput(f"the JSON in arguments nests deeper than {MAX_DEPTH} levels", param=path)
                in_values, in_text = MarkerCounts(), MarkerCounts()
                safe = self.apply_to_json(parsed, path, in_values)
                text = text if safe == parsed else json.dumps(safe, ensure_ascii=False)
                # An object may have a key twice. The parsed object has only the last value.
                text = self.apply([Segment(text, "", path, False)], in_text).segments[0].text
                counts.add_larger(in_values, in_text)
                return text
        return self.apply([Segment(text, "", path, False)], counts).segments[0].text

    def check_variables(self, value: Any, path: str, counts: MarkerCounts) -> None:
        """Refuse markers in values that a target's own template may write.

        If the policy only allows or reports markers, the markers are counted and not refused.
        """
        for text in texts_in(value):
            self._check_name(text, path, counts)

    def count_folded(self, texts: Sequence[str]) -> MarkerCounts:
        """Search the texts of a request after ``fold``, for a tokenizer that normalizes texts.

        A kind of marker that is found is refused or counted once.
        """
        assert self.folded is not None
        counts, views = MarkerCounts(), list(map(fold, texts))
        for kind, action in self.actions.items() if self.folded.may_occur(views) else ():
            joined = ("\n" if kind == "text_like" else "").join(views)
            if any(self.folded.find(joined, kind)):
                if action == "reject":
                    raise refusal("messages")
                counts.add(kind, "messages")  # once: the texts of a request may repeat each other
            if action == "reject" and any(map(self._may_join_folded, texts, views)):
                raise refusal("messages")
        return counts

    def _may_join_folded(self, text: str, view: str) -> bool:
        """True if a text may form a marker with the template only after folding. Otherwise its prompt is searched."""
        assert self.folded is not None
        return not self.folded.seams_in(view) <= self.markers.seams_in(text)

    def _check_name(self, name: str, path: str, counts: MarkerCounts) -> None:
        if not self.may_occur([name]):
            return
        for hit in self.markers.find(name, "token_like"):
            if self.changes:
                raise refusal(path, f"{quoted(name[hit.start : hit.end])}, a marker that separates")
            counts.add(hit.kind, path)

    def _forged(self, pieces: Sequence[Segment], counts: MarkerCounts) -> list[tuple[Hit, int]]:
        """Return each forged marker, with the index of the first piece of the client that contains a part of it.

        If the policy only counts a kind of marker, the search for this kind ends after ``MAX_MARKERS`` markers.
        """
        begins, ends, starts = [0], [0], _starts(pieces)
        for piece, start in zip(pieces, starts, strict=True):
            if not piece.scaffold and piece.text:  # client text ends one stretch of template text and begins the next
                ends[-1] = start
                begins.append(start + len(piece.text))
                ends.append(begins[-1])
        ends[-1] = starts[-1] + len(pieces[-1].text) if pieces else 0
        text = "".join([piece.text for piece in pieces])
        forged: list[tuple[Hit, int]] = []
        for kind, action in self.actions.items():
            number = 0 if action in CHANGES else counts.of(kind)
            if number > MAX_MARKERS:
                continue
            previous = 0
            for hit in self.markers.find(text, kind):
                if hit.end <= max(ends[bisect_right(begins, hit.start) - 1], previous):
                    continue  # in text of the template, or a part of the previous marker
                if number > MAX_MARKERS:
                    break
                place = bisect_right(starts, hit.start) - 1
                while pieces[place].scaffold or starts[place] + len(pieces[place].text) <= hit.start:
                    place += 1
                forged.append((hit, place))
                previous, number = hit.end, number + 1
        return forged

    def _edited(self, pieces: Sequence[Segment], edits: Sequence[tuple[Hit, int]]) -> tuple[Segment, ...]:
        """Return the pieces after ``escape`` and ``strip``. Text of the template is not changed."""
        starts = _starts(pieces)
        joins: dict[int, list[tuple[int, int, str]]] = {}
        """Index of a piece → (begin, end, new text) of each change, in offsets of the whole text."""
        for hit, place in edits:
            if self.actions[hit.kind] == "escape":
                at = _break(hit, starts[place])
                joins.setdefault(place, []).append((at, at, JOINER))
                continue
            while place < len(pieces) and starts[place] < hit.end:
                if not pieces[place].scaffold:
                    end = starts[place] + len(pieces[place].text)
                    joins.setdefault(place, []).append((max(hit.start, starts[place]), min(hit.end, end), ""))
                place += 1
        edited = list(pieces)
        for place, changes in joins.items():
            text, at, parts = pieces[place].text, starts[place], list[str]()
            for begin, end, new in sorted(changes):
                parts += (text[at - starts[place] : max(begin, at) - starts[place]], new)
                at = max(end, at)
            edited[place] = replace(pieces[place], text="".join(parts) + text[at - starts[place] :])
        return tuple(edited)


def refusal(path: str, found: str = "a marker, such as a special token, that separates") -> ForgedMarker:
    """Return the error for a marker in a text of the request. Of the text, the error contains only the marker."""
    return ForgedMarker(
        f"this text contains {found} the turns of this model's prompt; "
        "remove markers from it, or ask the operator for a key with allow_markers",
        param=path,
    )


def texts_in(value: Any) -> Iterator[str]:
    """Return every text in a JSON value, including the keys. The JSON in ``arguments`` is also parsed."""
    for key, inner in values_with_keys(value):
        if isinstance(inner, str):
            yield inner
            if key == "arguments":
                yield from texts_in(_parsed(inner))
        elif isinstance(inner, (list, tuple)):  # templates join the texts of content parts
            yield "".join([one["text"] for one in inner if isinstance(one, Mapping) and type(one.get("text")) is str])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _starts(pieces: Sequence[Segment]) -> list[int]:
    return [0, *accumulate([len(piece.text) for piece in pieces])][:-1]


def _break(hit: Hit, start: int) -> int:
    """Return the offset at which a marker is broken: after its first character, or at ``start`` if that is later.

    ``start``: the offset of the client's piece that contains the marker.
    """
    return max(hit.start + 1, start)
