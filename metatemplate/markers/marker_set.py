"""The markers of a model: the texts that separate the turns in a prompt. Also the search for markers in a text.

A message that contains a marker can forge a turn (``docs/spec/reliability.md`` 3.4). There are two kinds of markers:

``token_like``  ``<|im_end|>``, ``</s>``, ``[INST]``, what stands in unusual brackets around messages (``[gMASK]``), and
                the special tokens of the model's tokenizer: found anywhere
``text_like``   ``USER:``, ``### Response:``: found at the beginning of a line. If the template can write the marker
                inside a line, also found after any white space

The markers come from the texts that the template can write. A text-like marker is the line that the template writes
directly before or after a message.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from metatemplate.templates.base import Template
from metatemplate.templates.spec import RoleSpec
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.frozen import dataclass
from metatemplate.values.json_values import texts_in_values

MarkerKind = Literal["token_like", "text_like"]
JOINER = "\u2060"
"""U+2060 WORD JOINER, an invisible character. ``escape`` inserts it in a marker, because no marker contains it."""
EDGE = "\0"
"""The character that stands for the beginning or the end of a text."""
MIN_LENGTH = 3
"""The minimum length of a marker. A shorter text, such as ``Q:``, is too frequent in ordinary text."""
MAX_LENGTH = 128
"""The maximum length of a text-like marker. A longer line of a template is usually a sentence."""
REASONING = ("<think>", "</think>")
"""The tags around reasoning. They separate no turns, and a client may send them back as part of an earlier answer. So
they are markers only if the tokenizer has them as special tokens."""
UNKNOWN = "\ufffd"
"""The character with which ``fold`` replaces rare characters that no marker contains."""
MAX_FOLDED = 4
"""The maximum length of a plain form. ``fold`` does not replace a character whose plain form is longer."""
MAX_SEPARATE = 8
"""The maximum number of markers that are searched one by one. More markers are searched with one expression."""
HEADER = re.compile(r"[^\"'{}<>]+[:\uff1a]\s*")
"""Matches a line of a chat template that may be the header of a role."""
FILLERS = "\u115f\u1160\u3164\uffa0\u1cf2\u1cf3\ufffd"
"""The invisible letters, two letters that were marks before Unicode 12, and the replacement character."""
REMOVED = re.compile("[\U000e0000-\U0010ffff]+")
"""Matches further invisible characters and private-use characters. ``fold`` removes them without its table."""
UNFOLDED = re.compile("[\U00030000-\U000dffff]+")
"""Matches characters that have no plain form. ``fold`` replaces them by ``UNKNOWN``, so that its table stays small."""
TOKEN_LIKE = re.compile(r"<\|[^<>\n]{1,64}\|>|<<?/?[^\s<>]{1,64}>>?|\[\|[^\[\]\n]{1,32}\|\]|\[/?[A-Z0-9_]{2,32}\]")
"""Matches the token-like markers inside a text of a template."""
_NO_BRACKETS = "(){}\uff08\uff09\uff5b\uff5d"
"""Round and curly brackets, which are frequent in sentences and JSON, and separate no turns."""
_EVERY_BRACKET = [one for one in map(chr, range(0x10000)) if unicodedata.category(one) in ("Ps", "Pe")]
_BRACKETS = re.escape("".join([one for one in _EVERY_BRACKET if one not in _NO_BRACKETS]))
_AROUND_MESSAGES = re.compile(
    rf"{TOKEN_LIKE.pattern}"
    rf"|(?<![\w!])[{_BRACKETS}](?=[^\s{_BRACKETS}]*[^\W\d_])[^\s\"'`,:;<>{_NO_BRACKETS}{_BRACKETS}]{{2,32}}[{_BRACKETS}]"
    r"(?!\()"
)
"""Matches the token-like markers in the texts before, between and after messages. There, a marker may also stand in
other brackets (``[gMASK]``, ``\u3008|EOS|\u3009``, ``]~b]``): 2 to 32 characters with a letter, and without white
space, quotes, commas, colons and semicolons. It follows no letter or digit, and is not the text of a Markdown link."""
_ROW = re.compile(rf"(?:(?:{_AROUND_MESSAGES.pattern})\s*)+")
"""Matches markers that follow each other."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A marker in a text."""

    start: int
    end: int
    kind: MarkerKind


@dataclass(frozen=True, slots=True)
class TemplateTexts:
    """The texts that a template can write around the texts of the client."""

    before: tuple[str, ...] = ()
    """Texts directly before a message or an answer."""
    after: tuple[str, ...] = ()
    """Texts directly after a message or an answer."""
    further: tuple[str, ...] = ()
    """All other texts of the template. Only token-like markers are taken from these texts."""
    around: tuple[str, ...] = ()
    """Further texts before, between and after messages. As from ``before`` and ``after``, markers in unusual brackets
    are taken from these texts."""
    inline: bool = False
    """True if a text before a message may follow another text on the same line."""
    special: tuple[str, ...] = ()
    """Special tokens of the model's tokenizer, as the files of the template list them. They are token-like markers."""
    inserted: tuple[str, ...] = ()
    """Texts that a chat template may write inside a text of the client, such as the new text of ``replace``."""
    adds_characters: bool = False
    """True if a chat template has operations that may write other texts inside a text of the client."""
    searched: tuple[str, ...] = ()
    """Texts such as ``</think>`` that the template or the parser searches for in an answer. They are not markers,
    because a client may send them back as part of an earlier answer."""


class MarkerSet:
    """The markers of one model, compiled for fast search."""

    def __init__(
        self,
        texts: TemplateTexts,
        added_tokens: Mapping[str, bool] = EMPTY_MAPPING,
        write: Callable[[str], str] = str,
    ) -> None:
        """``added_tokens``: added token of the model's tokenizer → True for a special token.

        ``write``: changes each marker; ``fold`` for markers as a normalizing tokenizer may read them.
        """
        every = [text for text in (*texts.before, *texts.after, *texts.around, *texts.further) if text]
        special = [token for token, is_special in added_tokens.items() if is_special]
        special = [token.strip() for token in (*special, *texts.special)]
        added = [token for token in added_tokens if TOKEN_LIKE.fullmatch(token)]
        tokens = dict.fromkeys([*special, *added, *_tokens_in(texts)])
        lines: dict[str, bool] = {}
        dropped: dict[str, None] = {}
        for near in (*[text.split("\n")[::-1] for text in texts.before], *[text.split("\n") for text in texts.after]):
            for line in near:  # from the message on
                core = line.strip()
                if any(tokens_around(line)) or core in tokens or len(core) > MAX_LENGTH:
                    break
                if len(core) >= MIN_LENGTH:
                    follows = texts.inline and line == near[-1]  # the line begins where another text ends
                    written = write(core)
                    lines[written] = lines.get(written, False) or line[0].isspace() or follows
                    break
                if core:
                    dropped[core] = None
        ignored = set(map(write, (*texts.searched, *REASONING))).difference(map(write, special))
        self.token_like = _usable(dict.fromkeys(map(write, tokens)), ignored)
        """The token-like markers."""
        self.text_like = _usable(lines, ignored)
        """The text-like markers."""
        self.dropped = tuple(dropped)
        """The lines next to messages that are too short to be markers."""
        self._tokens = re.compile(any_of(self.token_like))
        at_line, inside = ([core for core in self.text_like if lines[core] is mode] for mode in (False, True))
        self._lines = re.compile(rf"(?m)^[ \t]*({any_of(at_line)})|(?<!\S)({any_of(inside)})")
        groups: dict[str, list[str]] = {}
        for core in (*self.token_like, *self.text_like):
            groups.setdefault(_key(core), []).append(core)
        self._groups = tuple([(key, _contains_any(cores)) for key, cores in groups.items()])
        """Pairs (rare character, function that finds the markers with this character in a text)."""
        self._seams = _seams((*self.token_like, *self.text_like), list(map(write, every)))
        inserted = "".join(texts.inserted)
        self._inserts = texts.adds_characters or any(key in inserted for key, _ in self._groups)
        """True if the template may insert the rare character of a marker into a text of the client."""
        self._folded_case = "\n".join((*self.token_like, *self.text_like)).casefold()

    def may_occur(self, texts: Sequence[str]) -> bool:
        """Return whether a prompt with these texts of the client may have a forged marker.

        If the result is True, ``find`` gives the exact answer.
        """
        joined = "".join(texts)  # texts without template text between them are searched as one text
        for key, has_marker in self._groups:
            if key in joined and has_marker(joined):
                return True
        return bool(self._seams) and self.may_join(texts)

    def may_join(self, texts: Sequence[str]) -> bool:
        """Return whether a text of the client may form a marker together with a text of the template."""
        joined = f"{EDGE}{EDGE.join(map(_edges, texts))}{EDGE}"
        return any(seam in joined for seam in self._seams)

    def seams_in(self, text: str) -> set[str]:
        """Return the parts of markers at the edges of a text that a text of the template may complete."""
        return {seam for seam in self._seams if seam in f"{EDGE}{_edges(text)}{EDGE}"} if self._seams else set()

    def may_be_made_of(self, texts: Sequence[str]) -> bool:
        """Return whether a chat template that changes these texts may make a marker of them.

        False if no text has the rare character of a marker, such as ``<``, and if the template cannot add it.
        """
        return self._inserts or bool(self._seams) or any(key in text for key, _ in self._groups for text in texts)

    def is_harmless(self, text: str) -> bool:
        """Return whether no marker can be made of a text: it has no part of one, see ``may_be_made_of``."""
        return not self._inserts and not self.seams_in(text) and not any(key in text for key, _ in self._groups)

    def has_part(self, text: str) -> bool:
        """Return whether a marker contains a text, in capital or in small letters."""
        return text.casefold() in self._folded_case

    def find(self, text: str, kind: MarkerKind) -> Iterator[Hit]:
        """Find every marker of one kind in a text. Overlapping markers are included.

        If several markers begin at the same position, only the longest marker is returned.
        """
        if kind == "text_like":
            for match in self._lines.finditer(text) if self.text_like else ():
                yield Hit(*match.span(match.lastindex or 0), kind)
            return
        found = self._tokens.search(text) if self.token_like else None
        while found is not None:
            yield Hit(found.start(), found.end(), kind)
            found = self._tokens.search(text, found.start() + 1)

    def in_order(self, text: str, kind: MarkerKind) -> list[str]:
        """Return the markers of one kind in a text, as a tokenizer reads them: from left to right, without overlaps."""
        if kind == "token_like":
            return self._tokens.findall(text) if self.token_like else []
        return [match[match.lastindex or 0] for match in self._lines.finditer(text)] if self.text_like else []


class _Folding(dict[int, str]):
    """Code point → the characters with which ``fold`` replaces this code point."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        plain = unicodedata.normalize("NFKD", character)
        plain = plain if len(plain) <= MAX_FOLDED else character
        kept = [one for one in plain if unicodedata.category(one)[0] not in "CM" and one not in FILLERS]
        self[code] = folded = "".join(kept).casefold()
        return folded


_FOLDING = _Folding({ord(one): one for one in "\t\n\r"})


def fold(text: str) -> str:
    """Return a text as a normalizing tokenizer may read it: the plain forms of its characters, in lower case.

    Each character is replaced separately by its plain form (Unicode's NFKD), so that the time is linear. For example,
    ``\uff1c`` becomes ``<``. Control characters, invisible and private-use characters, accents and other marks are
    removed.
    """
    return UNFOLDED.sub(UNKNOWN, REMOVED.sub("", text)).translate(_FOLDING)


def texts_of(template: Template) -> TemplateTexts:
    """Return the texts that a template can write around the texts of the client."""
    spec = template.spec
    if spec.makes_messages:  # the target writes the prompt; its markers are the tokens of its tokenizer
        return TemplateTexts()
    thinking = (spec.thinking.begin, spec.thinking.end) if spec.thinking is not None else ()
    further = () if spec.tools is None else tuple(texts_in_values(asdict(spec.tools)))
    if spec.jinja is not None:
        return _jinja_texts(template, thinking, (*further, *spec.jinja.ends, *spec.stop))
    if spec.prompter is not None:
        from metatemplate.prompters.assembly import RESPONSE
        from metatemplate.prompters.instruction import LIST_HEADING, PREAMBLE

        tokens = spec.prompter.tokens
        named = {name: text or "" for name, text in asdict(tokens).items()}
        ends = ("eos", "eoh", "eoa", "eoe", "tool_end_token")
        return TemplateTexts(
            before=(
                *[text for name, text in named.items() if name not in ("system", *ends)],
                RESPONSE if spec.prompter.form == "alpaca" else "",
                *spec.stop,
            ),
            after=(*[named[name] for name in ends], *spec.prompter.stop_words),
            further=(
                *further,
                tokens.system,
                *texts_in_values(spec.prompter.instruction),
                LIST_HEADING,
                PREAMBLE,
                "\n",
            ),
            around=(spec.bos_text,),
            searched=thinking,
        )
    roles = [entry for entry in (*spec.round, *spec.reserved_roles) if isinstance(entry, RoleSpec)]
    bare = [entry for entry in spec.round if isinstance(entry, str)]
    return TemplateTexts(
        before=(*[role.begin for role in roles], *bare, spec.begin, *spec.stop),
        after=(*[role.end for role in roles], *bare, spec.end),
        inline=any(role.end and not role.end.endswith("\n") for role in roles),
        further=(*further, *[role.prompt or "" for role in roles], "\n"),
        around=(spec.bos_text,),
        searched=thinking,
    )


def _jinja_texts(template: Template, thinking: tuple[str, ...], further: tuple[str, ...]) -> TemplateTexts:
    from metatemplate.chat_templates.probes import texts_around_messages  # imports jinja2, which is optional
    from metatemplate.chat_templates.renderer import JinjaTemplate

    assert isinstance(template, JinjaTemplate)
    jinja = template.spec.jinja
    assert jinja is not None
    written = [text for compiled in template.compiled for text in (*compiled.written, *compiled.constants)]
    # A chat template does not show which of its lines are next to a message: a line that ends with a colon is.
    headers = [line for text in written for line in text.splitlines() if HEADER.fullmatch(line)]
    probed = [text for texts in texts_around_messages(template) for text in texts if text]
    headers += [line for text in probed for line in text.splitlines()[-1:] if HEADER.fullmatch(line)]
    probed_tokens = _tokens_in(TemplateTexts(around=tuple(probed)))
    tokens = tuple(jinja.special_tokens.values())
    searched = {text for compiled in template.compiled for text in compiled.searched}.difference(tokens, jinja.ends)
    return TemplateTexts(
        before=tuple(headers),
        further=(*written, *further),
        around=(*dict.fromkeys(probed_tokens), template.spec.bos_text),
        special=(*tokens, *jinja.further_special_tokens),
        inline=True,
        inserted=tuple([text for compiled in template.compiled for text in compiled.inserted]),
        adds_characters=any(compiled.adds_characters for compiled in template.compiled),
        searched=(*thinking, *searched),
    )


def _tokens_in(texts: TemplateTexts) -> Iterator[str]:
    """Return the token-like markers in the texts of a template."""
    around = (*texts.before, *texts.after, *texts.around)
    for text in (*around, *texts.further):
        yield from TOKEN_LIKE.findall(text)
    for text in around:
        yield from tokens_around(text)


def tokens_around(text: str) -> Iterator[str]:
    """Return the token-like markers in a text before, between or after messages.

    Words in other brackets are markers only at the beginning or end of the text, which is next to a message or at an
    end of the prompt, or next to another marker. Elsewhere they are prose, such as that of a default system message.
    """
    text = text.strip()
    for row in _ROW.finditer(text):
        if row.start() == 0 or row.end() == len(text) or TOKEN_LIKE.search(row[0]):
            yield from _AROUND_MESSAGES.findall(text, *row.span())


def _edges(text: str) -> str:
    """Return the beginning and the end of a text, without the white space around the text.

    A template may remove this white space.
    """
    text = text.strip()
    return text if len(text) <= 2 * MAX_LENGTH else f"{text[:MAX_LENGTH]}\n{text[-MAX_LENGTH:]}"


def _usable(cores: Iterable[str], ignored: set[str]) -> tuple[str, ...]:
    return tuple([core for core in cores if len(core) >= MIN_LENGTH and core not in ignored and JOINER not in core])


def _key(marker: str) -> str:
    """Return a character of a marker that is rare in ordinary text, or else the marker's first character."""
    rare = [one for one in (*"<[#:", *marker) if one in marker and not (one.isalnum() or one.isspace())]
    return rare[0] if rare else marker[0]


def _seams(markers: Iterable[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of markers that become a whole marker if a text of the template comes before or after them.

    ``EDGE`` in a part shows on which side the text of the template is added.
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
    """Return a function that returns whether a text contains one of the markers.

    The characters of a marker are searched first, because a search for one is much faster: a text of beginnings of
    ``<|im_end|>`` has no ``>``. ``rfind`` takes a tenth to a half of the time of ``in`` for texts with many ``<``.
    """
    if len(markers) <= MAX_SEPARATE:
        pairs = [(marker, sorted(set(marker))) for marker in markers]
        return lambda text: any(all(map(text.__contains__, ones)) and text.rfind(one) >= 0 for one, ones in pairs)
    shared, search = set.intersection(*map(set, markers)), re.compile(any_of(markers)).search
    return lambda text: all(map(text.__contains__, shared)) and search(text) is not None


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression that matches any of the texts, and prefers the longest one.

    Texts with the same beginning share one branch of the expression.
    """
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
