"""The markers of a model: the texts that separate the turns in its prompts, and an expression that finds them.

A message that contains a marker can forge a turn (``docs/spec/reliability.md`` 3.4). There are two kinds of markers:

``token_like``  ``<|im_end|>``, ``</s>``, ``[INST]``: found anywhere; also the special tokens of the model's tokenizer
``text_like``   ``USER:``, ``### Response:``: found at the beginning of a line; after any white space if the template
                can write the marker inside a line

The markers come from the texts that the template can write. A text-like marker is the template's line directly before
or after a message.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.frozen import dataclass
from gateway.template.base import Template
from gateway.template.lazyllm.assembly import RESPONSE
from gateway.template.lazyllm.instruction import LIST_HEADING, PREAMBLE
from gateway.template.lazyllm.tokens import SpecialTokens
from gateway.template.spec import RoleSpec

Kind = Literal["token_like", "text_like"]
JOINER = "\u2060"
"""U+2060 WORD JOINER, an invisible character. No marker contains it, so it breaks a marker without a visible change."""
EDGE = "\0"
"""Marks the edge of a text."""
MIN_LENGTH = 3
"""A shorter text, such as ``Q:``, is too frequent in ordinary text to be a marker."""
MAX_LENGTH = 128
"""A longer line of a template is a sentence and not a marker."""
REASONING = ("<think>", "</think>")
"""The marks around reasoning, which separate no turns: a client that sends an answer back sends them too. Templates
write them without declaring ``thinking``. They are markers only if the tokenizer calls them special tokens."""
UNKNOWN = "\ufffd"
"""``fold`` writes this character for others that no marker contains."""
MAX_FOLDED = 4
"""A character with a longer plain form, such as an Arabic ligature of 18 letters, is kept by ``fold``."""
MAX_SEPARATE = 8
"""Up to this number of markers, a search for each one is faster than a search with one expression."""
HEADER = re.compile(r"[^\"'{}<>]+[:\uff1a]\s*")
"""Matches a line of a chat template that may be the header of a role."""
IGNORED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Matches control characters and invisible ones (Unicode's Default_Ignorable_Code_Point)."""
UNFOLDED = re.compile("[\U00030000-\U0010ffff]+")
"""Matches characters beyond those with plain forms. Without them the table of plain forms stays small."""
TOKEN_LIKE = re.compile(r"<\|[^<>\n]{1,64}\|>|<<?/?[^\s<>]{1,64}>>?|\[\|[^\[\]\n]{1,32}\|\]|\[/?[A-Z0-9_]{2,32}\]")
"""Matches the token-like markers inside a text of a template."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A marker in a text."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class TemplateTexts:
    """The texts that a template can write around the texts of the client."""

    before: tuple[str, ...] = ()
    """Texts directly before a message or an answer."""
    after: tuple[str, ...] = ()
    """Texts directly after a message or an answer."""
    further: tuple[str, ...] = ()
    """All other texts; only token-like markers are read from these."""
    inline: bool = False
    """True: a text before a message may follow another text on the same line."""
    searched: tuple[str, ...] = ()
    """Texts that are not markers, because the template or the parser looks for them in an answer (``</think>``). A
    client that sends an answer back sends them too."""

    def folded(self) -> TemplateTexts:
        """The same texts as ``fold`` writes them."""
        texts = {name: tuple(map(fold, getattr(self, name))) for name in ("before", "after", "further", "searched")}
        return TemplateTexts(**texts, inline=self.inline)


class MarkerSet:
    """The markers of one model, compiled once."""

    def __init__(self, texts: TemplateTexts, added_tokens: Mapping[str, bool] = EMPTY_MAPPING) -> None:
        """``added_tokens``: the added tokens of the model's tokenizer; True marks a special token."""
        every = [text for text in (*texts.before, *texts.after, *texts.further) if text]
        special = [token.strip() for token, is_special in added_tokens.items() if is_special]
        tokens = dict.fromkeys(special)
        tokens.update(dict.fromkeys([token for token in added_tokens if TOKEN_LIKE.fullmatch(token)]))
        lines: dict[str, bool] = {}
        dropped: dict[str, None] = {}
        for text in every:
            tokens.update(dict.fromkeys(TOKEN_LIKE.findall(text)))
        for near in (*[text.split("\n")[::-1] for text in texts.before], *[text.split("\n") for text in texts.after]):
            for line in near:  # from the message on
                core = line.strip()
                if TOKEN_LIKE.search(line) or core in tokens or len(core) > MAX_LENGTH:
                    break
                if len(core) >= MIN_LENGTH:
                    follows = texts.inline and line == near[-1]  # the line begins where another text ends
                    lines[core] = lines.get(core, False) or line[0].isspace() or follows
                    break
                if core:
                    dropped[core] = None
        ignored = {*texts.searched, *REASONING}.difference(special)
        self.token_like = _usable(tokens, ignored)
        """The token-like markers."""
        self.text_like = _usable(lines, ignored)
        """The text-like markers."""
        self.dropped = tuple(dropped)
        """The lines next to messages that are too short to be markers."""
        self._tokens = re.compile(_any_of(self.token_like))
        at_line, inside = ([core for core in self.text_like if lines[core] is mode] for mode in (False, True))
        self._lines = re.compile(rf"(?m)^[ \t]*({_any_of(at_line)})|(?<!\S)({_any_of(inside)})")
        groups: dict[str, list[str]] = {}
        for core in (*self.token_like, *self.text_like):
            groups.setdefault(_key(core), []).append(core)
        self._groups = tuple([(key, _contains_any(cores)) for key, cores in groups.items()])
        """(character, search for the markers with this character). Most text does not have the character."""
        self._seams = _seams((*self.token_like, *self.text_like), every)

    def may_occur(self, texts: Sequence[str]) -> bool:
        """False: a prompt with these texts of the client has no forged marker.

        True: the prompt may have one; search it with ``find``.
        """
        joined = "".join(texts)  # texts without template text between them are searched as one text
        for key, has_marker in self._groups:
            if key in joined and has_marker(joined):
                return True
        return bool(self._seams) and self.may_join(texts)

    def may_join(self, texts: Sequence[str]) -> bool:
        """True if one of these texts of the client may form a marker together with a text of the template."""
        joined = f"{EDGE}{EDGE.join(map(_edges, texts))}{EDGE}"
        return any(seam in joined for seam in self._seams)

    def has_rare_character(self, texts: Sequence[str]) -> bool:
        """True if a text contains the rare character of some marker, such as ``<``."""
        return any(key in text for key, _ in self._groups for text in texts)

    def find(self, text: str, kind: Kind) -> Iterator[Hit]:
        """Every marker of this kind in a text, also markers that overlap; at each position the longest one."""
        if kind == "text_like":
            for match in self._lines.finditer(text) if self.text_like else ():
                yield Hit(*match.span(match.lastindex or 0), kind)
            return
        found = self._tokens.search(text) if self.token_like else None
        while found is not None:
            yield Hit(found.start(), found.end(), kind)
            found = self._tokens.search(text, found.start() + 1)

    def count(self, text: str) -> int:
        """The number of token-like markers in a text, only for comparing two prompts."""
        if len(self.token_like) > MAX_SEPARATE:
            return len(self._tokens.findall(text))
        return sum(map(text.count, self.token_like))


class _Folding(dict[int, str]):
    """Code point → the characters that ``fold`` writes for it."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        plain = unicodedata.normalize("NFKD", character)
        self[code] = plain = plain if len(plain) <= MAX_FOLDED else character
        return plain


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text as a tokenizer that normalizes may read it: without invisible characters, and with plain forms.

    Each character is folded by itself (Unicode's NFKD), so that the time is linear: ``\uff1c`` becomes ``<``.
    """
    return UNFOLDED.sub(UNKNOWN, IGNORED.sub("", text)).translate(_FOLDING)


def texts_of(template: Template) -> TemplateTexts:
    """The texts that a template can write."""
    spec = template.spec
    if spec.makes_messages:  # the target writes the prompt; its markers are the tokens of its tokenizer
        return TemplateTexts()
    thinking = (spec.thinking.begin, spec.thinking.end) if spec.thinking is not None else ()
    further = (spec.bos_text, *_strings(spec.tools))
    if spec.jinja is not None:
        return _jinja_texts(template, thinking, (*further, *spec.jinja.ends, *spec.stop))
    if spec.prompter is not None:
        tokens = spec.prompter.tokens
        named = {field.name: getattr(tokens, field.name) or "" for field in fields(SpecialTokens)}
        ends = ("eos", "eoh", "eoa", "eoe", "tool_end_token")
        return TemplateTexts(
            before=(
                *[text for name, text in named.items() if name not in ("system", *ends)],
                RESPONSE if spec.prompter.form == "alpaca" else "",
                *spec.stop,
            ),
            after=(*[named[name] for name in ends], *spec.prompter.stop_words),
            further=(*further, tokens.system, *_strings(spec.prompter.instruction), LIST_HEADING, PREAMBLE, "\n"),
            searched=thinking,
        )
    roles = [entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)]
    bare = [entry for entry in spec.round if isinstance(entry, str)]
    return TemplateTexts(
        before=(*[role.begin for role in roles], *bare, spec.begin, *spec.stop),
        after=(*[role.end for role in roles], *bare, spec.end),
        inline=any(role.end and not role.end.endswith("\n") for role in roles),
        further=(*further, *[role.prompt or "" for role in roles], "\n"),
        searched=thinking,
    )


def _jinja_texts(template: Template, thinking: tuple[str, ...], further: tuple[str, ...]) -> TemplateTexts:
    from gateway.template.huggingface.renderer import JinjaTemplate  # imports jinja2, which is optional

    assert isinstance(template, JinjaTemplate)
    jinja = template.spec.jinja
    assert jinja is not None
    written = [text for compiled in template.compiled for text in (*compiled.written, *compiled.constants)]
    # A chat template does not show which of its lines are next to a message: a line that ends with a colon is.
    headers = [line for text in written for line in text.splitlines() if HEADER.fullmatch(line)]
    tokens = tuple(jinja.special_tokens.values())
    searched = {text for compiled in template.compiled for text in compiled.searched}.difference(tokens, jinja.ends)
    return TemplateTexts(
        before=tuple(headers),
        further=(*written, *tokens, *further),
        inline=True,
        searched=(*thinking, *searched),
    )


def _strings(value: Any) -> Iterator[str]:
    """Every text in a specification of frozen dataclasses, tuples and texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _strings(one)
    elif hasattr(value, "__dataclass_fields__"):
        for field in fields(value):
            yield from _strings(getattr(value, field.name))


def _edges(text: str) -> str:
    """The beginning and the end of a text without the white space around it, which a template may remove."""
    text = text.strip()
    return text if len(text) <= 2 * MAX_LENGTH else f"{text[:MAX_LENGTH]}\n{text[-MAX_LENGTH:]}"


def _usable(cores: Iterable[str], ignored: set[str]) -> tuple[str, ...]:
    return tuple([core for core in cores if len(core) >= MIN_LENGTH and core not in ignored and JOINER not in core])


def _key(marker: str) -> str:
    """A character of the marker that is rare in ordinary text."""
    rare = [one for one in (*"<[#:", *marker) if one in marker and not (one.isalnum() or one.isspace())]
    return rare[0] if rare else marker[0]


def _seams(markers: Iterable[str], texts: Sequence[str]) -> tuple[str, ...]:
    """The beginnings, ends and whole texts of a client that a text of the template completes to a marker.

    ``EDGE`` shows on which side the text of the template follows.
    """
    seams: dict[str, None] = {}
    begins = {text[:size] for text in texts for size in range(1, MAX_LENGTH + 1)}
    ends = {text[-size:] for text in texts for size in range(1, MAX_LENGTH + 1)}
    whole = set(texts)
    for marker in markers:
        splits = range(1, len(marker))
        # A text of the template continues the marker from the split on, or is a part of what follows.
        after = [at for at in splits if marker[at:] in begins or any(marker[at:end] in whole for end in splits)]
        before = [at for at in splits if marker[:at] in ends or any(marker[start:at] in whole for start in splits)]
        middles = [marker[start:end].strip() for start in before for end in after if start < end]
        seams.update(dict.fromkeys([marker[:at].strip() + EDGE for at in after]))
        seams.update(dict.fromkeys([EDGE + marker[at:].strip() for at in before]))
        seams.update(dict.fromkeys([EDGE + middle + EDGE for middle in middles if middle]))
    return tuple(seams)


def _contains_any(markers: Sequence[str]) -> Callable[[str], bool]:
    """A function that returns True for a text with one of the markers."""
    if len(markers) <= MAX_SEPARATE:
        return lambda text: any(marker in text for marker in markers)
    search = re.compile(_any_of(markers)).search
    return lambda text: search(text) is not None


def _any_of(texts: Iterable[str]) -> str:
    """An expression that matches any of the texts, the longest first. Texts with the same beginning share it."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return _branches(root) if root else "(?!)"


def _branches(node: dict[str, Any]) -> str:
    options = [re.escape(character) + _branches(inner) for character, inner in node.items() if character]
    if not options:
        return ""
    if len(options) == 1 and "" not in node:
        return options[0]
    return f"(?:{'|'.join(options)}){'?' if '' in node else ''}"
