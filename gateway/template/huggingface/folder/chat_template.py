"""The files of a model's folder that decide a prompt: templates, special tokens, and the ids that end an answer.

Used by templates of ``kind: jinja``, by ``gateway import`` and by ``gateway parity``. The rules are those of the
tokenizers of ``transformers`` 5, recorded by ``tests/template/huggingface/record_folders.py``. Where two files
disagree, ``transformers`` uses one of them without a message; here a note names both.

- ``chat_template.jinja`` is the template ``default``, and each file of ``additional_chat_templates/`` is a template of
  its own name (``default`` again, if there is such a file). Both win over ``chat_template`` in
  ``tokenizer_config.json``, which is a text or a list of names and texts.
- ``processor_config.json`` and ``chat_template.json`` are for processors. These prefer them to any other template, and
  the first to the second.
- Special tokens are in ``tokenizer_config.json``. Older folders, which have no ``added_tokens_decoder`` in it, keep
  them in ``special_tokens_map.json``, which wins; a null there removes a token.
- The ids that end an answer are in ``generation_config.json``, their texts in ``added_tokens_decoder``, in older
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
    disagreements,
    template_files,
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
from gateway.template.huggingface.folder.special_tokens import ADDED, GROUPS, TOKENS_MAP, read_tokens, text_of
from gateway.template.validation.problems import Problems, as_names

GENERATION = "generation_config.json"
ADDED_TOKENS = "added_tokens.json"
LOOKED_AT = (TEMPLATE, TOKENIZER, *PROCESSORS, GENERATION, TOKENS_MAP, ADDED_TOKENS)
"""The files that may decide a prompt, beside the templates in ``additional_chat_templates/``."""


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """The content of a model's folder."""

    templates: Templates = field(default=EMPTY_MAPPING)
    """By name; a single template is called ``default``."""
    tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """Special tokens by the names of their variables (``bos_token``)."""
    end_ids: tuple[int, ...] = ()
    """Ids of the tokens that end an answer."""
    ends: tuple[str, ...] = ()
    """Texts of these tokens, as far as the files contain them."""
    used: tuple[str, ...] = ()
    """Paths of the files that were used."""
    notes: tuple[str, ...] = ()
    """Files that disagree, and which of them is used."""


def template_in(fetch: Fetch, names: Names) -> str | None:
    """The path of the file with a folder's default template; None if the folder has no template.

    Raises ``TemplateError`` if ``transformers`` would find named templates without a default.
    """
    if fetch(TEMPLATE) is not None:
        return TEMPLATE
    named = names_in(names(NAMED))
    if DEFAULT in named:
        return join(NAMED, DEFAULT + JINJA)
    if named:
        raise TemplateError(
            f"the folder has {NAMED}/ and no {TEMPLATE}, so transformers finds {as_names(named)} and no default "
            f"template, and does not read {TOKENIZER}: name the file to be used"
        )
    problems = Problems()
    reader = FolderReader(fetch, names, problems)
    for name in (TOKENIZER, *PROCESSORS):
        if reader.object(name).get(KEY) is not None:
            return name
        if problems.found:
            raise TemplateError(problems.found[0].message)
    return None


def read_chat_files(name: str, fetch: Fetch, names: Names, problems: Problems) -> ChatFiles:
    """The content of the folder of the template's file ``name``; mistakes are added to ``problems``."""
    reader = FolderReader(fetch, names, problems)
    if reader.data(name, required=True) is None:
        return ChatFiles()
    folder = folder_of(name)
    config = reader.object(join(folder, TOKENIZER))
    templates = templates_of(name, reader)
    tokens = read_tokens(config, reader.object(join(folder, TOKENS_MAP)), problems)
    end_ids = _end_ids(reader.object(join(folder, GENERATION)))
    added: Any = config.get(ADDED)
    used = [*template_files(name, reader), join(folder, TOKENIZER), join(folder, GENERATION)]
    if tokens.is_older:
        added = {str(number): text for text, number in reader.object(join(folder, ADDED_TOKENS)).items()}
        used += [join(folder, TOKENS_MAP), join(folder, ADDED_TOKENS)]
    texts = [text_of(added.get(str(number))) for number in end_ids] if isinstance(added, dict) else []
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
    """A large ``tokenizer_config.json`` reduced to what decides a prompt and the end of an answer.

    Unchanged if it is not larger than ``MOST_BYTES``, or if one of the files is not a JSON object.
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
        wanted = [str(number) for number in _end_ids(ends)]
        kept[ADDED] = {number: given[ADDED][number] for number in wanted if number in given[ADDED]}
    elif ADDED in given:
        kept[ADDED] = given[ADDED]  # its presence alone marks a newer folder
    return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass")  # the reader reports a surrogate
