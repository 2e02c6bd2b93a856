"""Folders of models, whose files agree or not, and the conversations that are rendered by them.

The recorder (``record_folders.py``) runs in a Python that has ``transformers`` and imports this file and nothing of the
gateway; so here is the standard library only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).resolve().parent / "folder_goldens.json"

TELLS = "".join(
    f"[{name}={{{{ {name} if {name} is defined else 'undefined' }}}}]"
    for name in ("bos_token", "eos_token", "pad_token", "image_token", "audio_token")
)
"""A template that tells its tokens."""
TELLS_TOOLS = "{{ tools | length if tools else 'no' }} tools: {{ messages[0].content }}"

USER: dict[str, Any] = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ASKED: dict[str, list[dict[str, Any]] | None] = {"plain": None, "with a tool": [TOOL]}

CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
JINJA = "chat_template.jinja"
NAMED = "additional_chat_templates"
LIST = [
    {"name": "default", "template": "listed"},
    {"name": "tool_use", "template": TELLS_TOOLS},
    {"name": "rag", "template": "rag"},
]

Files = dict[str, Any]


def told(config: Files | None = None, older: Files | None = None, **more: Any) -> Files:
    """A folder whose template tells the tokens; ``None``: no such file."""
    files = {} if config is None else {CONFIG: config}
    return {JINJA: TELLS, **files, **({} if older is None else {MAP: older}), **more}


NEWER: dict[str, Any] = {"added_tokens_decoder": {}}
OBJECT = {"content": "<m>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}

FOLDERS: dict[str, Files] = {
    # ---- tokens
    "tokens: in the configuration": told({"bos_token": "<s>", "eos_token": "</s>"}),
    "tokens: in the map alone": told({}, {"bos_token": "<m>", "eos_token": "</m>"}),
    "tokens: no configuration": told(None, {"bos_token": "<m>"}),
    "tokens: objects in the map": told({}, {"bos_token": OBJECT, "pad_token": "<pad>"}),
    "tokens: typed objects in the configuration": told({"bos_token": {"__type": "AddedToken", **OBJECT}}),
    "tokens: the map goes before": told({"bos_token": "<s>"}, {"bos_token": "<m>"}),
    "tokens: the map fills up": told({"bos_token": "<s>"}, {"eos_token": "</m>"}),
    "tokens: the map goes before a null": told({"bos_token": None}, {"bos_token": "<m>"}),
    "tokens: a null in the map takes away": told({"bos_token": "<s>"}, {"bos_token": None}),
    "tokens: an empty text in the map": told({"bos_token": "<s>"}, {"bos_token": ""}),
    "tokens: an empty text": told({"bos_token": ""}),
    "tokens: a newer folder's map is not read": told(
        {**NEWER, "bos_token": "<s>"}, {"bos_token": "<m>", "eos_token": "</m>"}
    ),
    "tokens: of the folder's own": told({"image_token": "<img>", "audio_token": {"__type": "AddedToken", **OBJECT}}),
    "tokens: of the folder's own, as a mapping": told({**NEWER, "extra_special_tokens": {"image_token": "<img>"}}),
    "tokens: of the folder's own, said to be specific": told(
        {"model_specific_special_tokens": {"image_token": "<img>"}}
    ),
    "tokens: of the folder's own, by the older name": told({"additional_special_tokens": {"image_token": "<img>"}}),
    "tokens: of the folder's own, by both names": told(
        {"additional_special_tokens": {"image_token": "<img>"}, "extra_special_tokens": {"audio_token": "<snd>"}}
    ),
    "tokens: of the folder's own, otherwise by both names": told(
        {"additional_special_tokens": {"image_token": "<img>"}, "extra_special_tokens": {"image_token": "<other>"}}
    ),
    "tokens: of the folder's own, by the older name behind a list": told(
        {"additional_special_tokens": {"image_token": "<img>"}, "extra_special_tokens": ["<other>"]}
    ),
    "tokens: of the folder's own, by the older name and the key": told(
        {"additional_special_tokens": {"image_token": "<img>"}, "image_token": "<other>"}
    ),
    "tokens: of the folder's own, by the older name in the map": told({}, {"additional_special_tokens": ["<img>"]}),
    "tokens: of the folder's own, in the map": told(
        {}, {"image_token": "<img>", "extra_special_tokens": {"audio_token": "<snd>"}}
    ),
    "tokens: of the folder's own, in both": told({"image_token": "<img>"}, {"image_token": "<other>"}),
    "tokens: of the folder's own, objects in both": told(
        {"image_token": {"__type": "AddedToken", **OBJECT}}, {"image_token": "<other>"}
    ),
    "tokens: added ones beside": told({}, {"bos_token": "<m>"}, **{"added_tokens.json": {"<m>": 4, "<eoa>": 5}}),
    # ---- templates
    "templates: one in the configuration": {CONFIG: {"chat_template": TELLS_TOOLS}},
    "templates: a list in the configuration": {CONFIG: {"chat_template": LIST}},
    "templates: a mapping in the configuration": {
        CONFIG: {"chat_template": {one["name"]: one["template"] for one in LIST}}
    },
    "templates: a name twice": {CONFIG: {"chat_template": [*LIST, {"name": "default", "template": "again"}]}},
    "templates: no default in the list": {CONFIG: {"chat_template": LIST[2:]}},
    "templates: a file, and another in the configuration": {JINJA: "file", CONFIG: {"chat_template": "configured"}},
    "templates: a file, and a list in the configuration": {JINJA: "file", CONFIG: {"chat_template": LIST}},
    "templates: named files": {JINJA: "file", f"{NAMED}/tool_use.jinja": TELLS_TOOLS, f"{NAMED}/rag.jinja": "rag"},
    "templates: named files, and a list": {JINJA: "file", f"{NAMED}/rag.jinja": "rag", CONFIG: {"chat_template": LIST}},
    "templates: a default in the folder": {JINJA: "file", f"{NAMED}/default.jinja": "its own"},
    "templates: a default in the folder alone": {
        f"{NAMED}/default.jinja": "its own",
        f"{NAMED}/tool_use.jinja": TELLS_TOOLS,
    },
    "templates: named files alone": {f"{NAMED}/rag.jinja": "rag", CONFIG: {"chat_template": "configured"}},
    "templates: other files in the folder": {JINJA: "file", f"{NAMED}/README.md": "no", f"{NAMED}/tool_use.j2": "no"},
    "templates: a processor's beside": {JINJA: "file", "chat_template.json": {"chat_template": "processor's"}},
    "templates: null in the configuration": {CONFIG: {"chat_template": None}},
    "templates: line ends": {JINJA: "a\r\nb{{ 'x\r\ny' }}\r\n"},
    "templates: a mark in front": {JINJA: "\ufeffa{{ messages[0].content }}"},
}


def write(folder: Path, files: Files) -> Path:
    """The files of a folder; what is no text is written as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode())
    return folder
