"""What makes the chat template of a model's folder? Its texts by name, its tokens, and the tokens that end an answer.

The one reader of such folders: for templates of ``kind: jinja``, for ``gateway import`` and for ``gateway parity``. Its
rules are those of the tokenizers of ``transformers`` 5, recorded by
``tests/template/huggingface/record_folders.py``.
Where two files disagree, one is silently taken there; here that is told.

- ``chat_template.jinja`` is the template called ``default``, each file of ``additional_chat_templates/`` one of its
  own name (``default`` again, if there is such a file). Either goes before ``chat_template`` in
  ``tokenizer_config.json``, a text or a list of names and texts.
- ``processor_config.json`` and ``chat_template.json`` are for processors, which take these before any other, and the
  former before the latter.
- Special tokens stand in ``tokenizer_config.json``. Older folders, known by having no ``added_tokens_decoder`` in it,
  keep them in ``special_tokens_map.json``, which goes before; a null there takes a token away.
- The ids that end an answer stand in ``generation_config.json``, their texts in ``added_tokens_decoder``, in older
  folders in ``added_tokens.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from posixpath import join
from typing import Any

from gateway.core.dialogue import EMPTY_MAPPING
from gateway.core.errors import TemplateError
from gateway.template.huggingface.folder.named_templates import (
    DEFAULT,
    KEY,
    PROCESSORS,
    TEMPLATE,
    TOKENIZER,
    Templates,
    deciding,
    disagreements,
    templates_of,
)
from gateway.template.huggingface.folder.reader import (
    JINJA,
    MOST_BYTES,
    NAMED,
    Fetch,
    FolderReader,
    Names,
    folder_of,
    names_in,
)
from gateway.template.huggingface.folder.special_tokens import ADDED, GROUPS, TokenFiles, read_tokens, text_of
from gateway.template.validation.problems import Problems, as_names

GENERATION = "generation_config.json"
TOKENS_MAP = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
LOOKED_AT = (TEMPLATE, TOKENIZER, *PROCESSORS, GENERATION, TOKENS_MAP, ADDED_TOKENS)
"""All that is looked at in a folder, beside the templates in ``additional_chat_templates/``."""


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """What a folder says."""

    templates: Templates = field(default=EMPTY_MAPPING)
    """By name; a single one is called ``default``."""
    tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """``bos_token`` … by name: the template's variables."""
    end_ids: tuple[int, ...] = ()
    """Ids of the tokens that end an answer."""
    ends: tuple[str, ...] = ()
    """Their texts, as far as the files know them."""
    used: tuple[str, ...] = ()
    """The files that decide all this, by their paths."""
    notes: tuple[str, ...] = ()
    """Where files disagree, and which one counts."""


def template_in(fetch: Fetch, names: Names) -> str | None:
    """The file of a folder that says which template is its default; None: it holds no template.

    Raises ``TemplateError`` if ``transformers`` would find named templates and no default one.
    """
    if fetch(TEMPLATE) is not None:
        return TEMPLATE
    named = names_in(names(NAMED))
    if DEFAULT in named:
        return join(NAMED, DEFAULT + JINJA)
    if named:
        raise TemplateError(
            f"{NAMED}/ stands there without {TEMPLATE}, so transformers finds {as_names(named)} and no default "
            f"template, whatever {TOKENIZER} says: name the file that is meant"
        )
    problems = Problems()
    for name in (TOKENIZER, *PROCESSORS):
        if FolderReader(fetch, names, problems).object(name).get(KEY) is not None:
            return name
        if problems.found:
            raise TemplateError(problems.found[0].message)
    return None


def read_chat_files(name: str, fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """What the folder of a template's file says; what is wrong goes to ``problems``."""
    reader = FolderReader(fetch, names, problems)
    if reader.data(name, needed=True) is None:
        return ChatFiles()  # what is not there has nothing beside it, and one complaint is enough
    folder = folder_of(name)
    templates = templates_of(name, reader)
    config, older_map = reader.object(join(folder, TOKENIZER)), reader.object(join(folder, TOKENS_MAP))
    tokens = read_tokens(TokenFiles(config, older_map), names=(TOKENIZER, TOKENS_MAP), problems=problems)
    generation = reader.object(join(folder, GENERATION))
    end_ids = _end_ids(generation)
    known = config.get(ADDED)
    if tokens.older:
        known = {str(number): text for text, number in reader.object(join(folder, ADDED_TOKENS)).items()}
    texts = [text_of(known.get(str(one))) for one in end_ids] if isinstance(known, dict) else []
    used = [*deciding(name, reader), join(folder, TOKENIZER), join(folder, GENERATION)]
    if tokens.older:
        used += [join(folder, TOKENS_MAP), join(folder, ADDED_TOKENS)]
    return ChatFiles(
        templates=templates,
        tokens=tokens.texts,
        end_ids=end_ids,
        ends=tuple([text for text in texts if text]),
        used=tuple([path for path in dict.fromkeys(used) if reader.data(path) is not None]),
        notes=(*disagreements(name, templates, reader), *tokens.notes),
    )


def _end_ids(generation: Mapping[str, Any]) -> tuple[int, ...]:
    value = generation.get("eos_token_id")
    return tuple([one for one in (value if isinstance(value, list) else [value]) if type(one) is int and one >= 0])


def shortened(config: bytes, generation: bytes | None) -> bytes:
    """A tokenizer's configuration without its thousands of tokens: what decides a prompt, and where answers end.

    As it stands if it is not too large, or no JSON object: then it is for the reader to complain.
    """
    if len(config) <= MOST_BYTES:
        return config
    try:
        given, ends = json.loads(config), json.loads(generation or b"{}")
    except (ValueError, RecursionError):
        return config
    if not isinstance(given, dict) or not isinstance(ends, dict):
        return config
    kept = {key: value for key, value in given.items() if key == KEY or key.endswith("_token") or key in GROUPS}
    if isinstance(given.get(ADDED), dict):
        wanted = [str(one) for one in _end_ids(ends)]
        kept[ADDED] = {number: given[ADDED][number] for number in wanted if number in given[ADDED]}
    elif ADDED in given:
        kept[ADDED] = given[ADDED]  # whatever it is: that it is there tells a newer folder
    return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass")  # for the reader to complain of
