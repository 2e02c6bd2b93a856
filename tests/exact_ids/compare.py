"""Compare the ids of prompts with those of the whole text, and look for control tokens from clients' texts.

Plain conversations contain no marker: their ids must be those of the whole text. Hostile conversations contain markers
in every disguise: their control tokens must be those that the template writes, and every stretch between two of these
tokens without a marker must have the ids of the whole text.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import tokenizers

from gateway.workshop.chat_folders import read_chat_folder
from metatemplate.errors import ForgedMarker, MetaTemplateError
from metatemplate.markers.prompt_ids import PromptIds
from metatemplate.markers.prompt_tokens import PromptTokenizer
from metatemplate.markers.role_boundaries import SafePrompt, SafeRenderer
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.dialogue import Dialogue, read_messages
from metatemplate.values.prompt import Prompt, Segment
from tests.exact_ids.corpus import Messages, hostile_conversation, plain_conversation

SHOWN = 5
"""The number of faults of each kind that are described."""


@dataclass
class Tally:
    """The counts of one tokenizer, and the first faults."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, kind: str, detail: str) -> None:
        self.counts[f"FAULT {kind}"] += 1
        if self.counts[f"FAULT {kind}"] <= SHOWN:
            self.faults.append(f"{kind}: {detail}")

    @property
    def wrong(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("FAULT"))


class Subject:
    """A tokenizer's folder: its chat template, and both ways to encode a prompt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template: Template = build(read_chat_folder(folder / "chat_template.jinja").spec)
        self.ours = PromptTokenizer(Tokenizer(folder))
        self.encode: Callable[[Sequence[Segment]], tuple[int, ...]] = partial(self.ours.encode, special=False)
        """Returns the ids of a prompt in parts."""
        self._prompt_ids = PromptIds(self.ours, SafeRenderer(self.template, None), whole=False)
        self.plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.added = {token.content: number for number, token in self.plain.get_added_tokens_decoder().items()}
        """Added token → its id."""
        self.control = {token: self.added[token] for token in self.ours.control}
        self.markers = tuple(self.added)
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        bos = config.get("bos_token") or ""
        self.bos = self.added.get(bos, -1)
        """The id of the token that begins a text; -1 if there is none."""
        self.begins = int("bos_token" in (folder / "chat_template.jinja").read_text(encoding="utf-8"))
        """The number of BOS in a prompt."""

    def render(self, messages: Messages) -> Prompt:
        return self.template.render(Dialogue(read_messages(list(messages))))

    def sent(self, messages: Messages, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids that the gateway sends. Raises ``ForgedMarker`` if it refuses the conversation."""
        dialogue, safe = Dialogue(read_messages(list(messages))), SafePrompt(prompt)
        return asyncio.run(self._prompt_ids.of(dialogue, safe, allow=False, special=False))

    def whole(self, text: str) -> tuple[int, ...]:
        """Return the ids of the whole text, as an engine makes them with ``add_special_tokens: false``."""
        return tuple(self.plain.encode(text, add_special_tokens=False).ids)


def conversations(subject: Subject, number: int, seed: int, hostile: bool) -> Iterator[Messages]:
    """Yield this many conversations; a hostile one counts for each of its texts."""
    rng = random.Random(f"{subject.folder.name} {seed} {hostile}")
    markers, done = subject.markers, 0
    if not hostile:
        markers = tuple(subject.control)
        for _ in range(number):
            yield plain_conversation(rng, markers)
        return
    # Tokens such as <unused17> and <|reserved_special_token_4|> differ only in their number.
    groups = Counter("".join(character for character in marker if not character.isdigit()) for marker in markers)
    common = [one for one in markers if groups["".join(c for c in one if not c.isdigit())] < 20]
    while done < number:
        messages = hostile_conversation(rng, common if rng.random() < 0.8 else markers)
        done += len(messages)
        yield messages


def silent(done: int) -> None:
    """Show no progress."""


def compare_plain(subject: Subject, number: int, seed: int, progress: Callable[[int], None] = silent) -> Tally:
    """Compare plain conversations: our ids, those of the whole text, and the number of BOS."""
    tally = Tally()
    for done, messages in enumerate(conversations(subject, number, seed, hostile=False)):
        progress(done)
        try:
            prompt = subject.render(messages)
            ids = subject.encode(prompt.segments or ())
            sent = subject.sent(messages, prompt)
        except MetaTemplateError as error:
            tally.fault("refused", f"{error} {messages}")
            continue
        whole = subject.whole(prompt.text)
        tally.counts["conversations"] += 1
        if sent != ids:
            tally.fault("the gateway sends other ids", f"{first_difference(sent, ids, subject)} {messages}")
        tally.counts["tokens"] += len(ids)
        if ids != whole:
            tally.fault("other ids than the whole text", f"{first_difference(ids, whole, subject)} {messages}")
        if ids.count(subject.bos) != subject.begins:
            tally.fault("number of BOS", f"{ids.count(subject.bos)} instead of {subject.begins} {messages}")
    return tally


def compare_hostile(subject: Subject, number: int, seed: int, progress: Callable[[int], None] = silent) -> Tally:
    """Encode hostile conversations, and compare the control tokens and the stretches between them."""
    tally = Tally()
    for messages in conversations(subject, number, seed, hostile=True):
        progress(tally.counts["texts"])
        tally.counts["texts"] += len(messages)
        try:
            prompt = subject.render(messages)
            segments = prompt.segments or ()
            ids = subject.encode(segments)
            if subject.sent(messages, prompt) != ids:
                tally.fault("the gateway sends other ids", f"{messages!r}")
        except ForgedMarker:
            tally.counts["refused"] += 1
            try:
                sent = subject.sent(messages, prompt)
                tally.fault("the gateway sends what cannot be told apart", f"{messages!r} {sent}")
            except ForgedMarker:
                pass
            continue
        except MetaTemplateError as error:
            tally.counts[f"not rendered: {type(error).__name__}"] += 1
            continue
        judge(subject, tally, ids, segments, messages)
    return tally


def judge(
    subject: Subject, tally: Tally, ids: tuple[int, ...], segments: Sequence[Segment], messages: Messages
) -> None:
    """Count one hostile conversation, and its faults."""
    text = "".join(one.text for one in segments)
    control = set(subject.control.values())
    written = control_tokens(subject, segments)
    found = [one for one in ids if one in control]
    if found != [number for _, number in written]:
        tally.fault("control tokens that the template does not write", f"{messages!r} {found} {written}")
        return
    if decoded(subject, ids) != decoded(subject, subject.whole(text)):
        tally.fault("another text", f"{messages!r}")
    whole = subject.plain.encode(text, add_special_tokens=False)
    begins = {begin for begin, _ in written}
    theirs = split(
        zip(whole.ids, [begin for begin, _ in whole.offsets], strict=True),
        lambda one: one[0] in control and one[1] in begins,
    )
    ours = split(((one, 0) for one in ids), lambda one: one[0] in control)
    if len(theirs) != len(ours):  # a marker of the client took a part of a marker of the template
        tally.counts["a client's marker joined the template's in the whole text"] += 1
        return
    for mine, other in zip(ours, theirs, strict=True):
        changed = any(one in control for one in other)
        same = mine == other
        tally.counts["stretches with a marker" if changed else "stretches without a marker"] += 1
        if changed and same:
            tally.fault("a marker is a control token", f"{messages!r}")
        if not changed and not same:
            tally.fault("other ids without a marker", f"{first_difference(mine, other, subject)} {messages!r}")
    if ids != tuple(whole.ids):
        tally.counts["conversations that differ from the whole text"] += 1


def control_tokens(subject: Subject, segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return (offset, id) of every control token that stands wholly in text of the template.

    Runs of scaffold are searched as one text, because a template may write a marker in two pieces.
    """
    found: list[tuple[int, int]] = []
    at, begin, run = 0, 0, ""
    for one in [*segments, Segment("", "", "", False)]:
        if one.scaffold:
            begin, run = (begin, run) if run else (at, "")
            run += one.text
        elif one.text or at == sum(len(each.text) for each in segments):
            encoding = subject.plain.encode(run, add_special_tokens=False)
            control = set(subject.control.values())
            found += [
                (begin + offset[0], number)
                for number, offset in zip(encoding.ids, encoding.offsets, strict=True)
                if number in control
            ]
            run = ""
        at += len(one.text)
    return found


def split(ids: Iterator[tuple[int, int]], at: Callable[[tuple[int, int]], bool]) -> list[list[int]]:
    """Return the stretches of ids between those for which ``at`` is true."""
    parts: list[list[int]] = [[]]
    for one in ids:
        if at(one):
            parts.append([])
        else:
            parts[-1].append(one[0])
    return parts


def decoded(subject: Subject, ids: Sequence[int]) -> str:
    return str(subject.plain.decode(list(ids), skip_special_tokens=False))


def first_difference(ours: Sequence[int], theirs: Sequence[int], subject: Subject) -> str:
    """Return the position of the first different token, and some tokens of both sides from there."""
    at = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    sides = [[subject.plain.id_to_token(one) for one in side[max(0, at - 1) : at + 4]] for side in (ours, theirs)]
    return f"token {at}: {sides[0]} instead of {sides[1]}"
