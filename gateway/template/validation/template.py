"""From the content of a template file to its checked form; every mistake is reported at once.

The keys of OpenCompass keep their names, so that a ``meta_template`` can be pasted. Files on which the reference
crashes later are refused here (``docs/spec/opencompass.md`` 12). ``null`` means absent, as in shipped configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.template.huggingface.folder import Fetch, Names
from gateway.template.spec import TemplateSpec
from gateway.template.validation.examples import check_examples
from gateway.template.validation.jinja import JINJA_KEYS, check_rendering, read_jinja
from gateway.template.validation.meta import META_KEYS, read_meta
from gateway.template.validation.problems import Problems, SpecError
from gateway.template.validation.prompter import PROMPTER_KEYS, read_prompter
from gateway.template.validation.tools import KEYS as TOOL_KEYS
from gateway.template.validation.tools import check_tools

__all__ = ["SpecError", "parse_spec"]

KEYS = {
    "meta": META_KEYS,
    "prompter": PROMPTER_KEYS,
    "jinja": JINJA_KEYS,
    "chat": ("kind", "description", "stop", "eos_token_id", "examples", *TOOL_KEYS),
}


def _alone(name: str) -> bytes | None:
    """``fetch`` for a template that is not from a file."""
    return None


def _empty(name: str) -> tuple[str, ...]:
    """``names`` for a template that is not from a file."""
    return ()


def parse_spec(
    raw: Mapping[str, Any],
    *,
    name: str,
    digest: str = "",
    generates: bool = True,
    fetch: Fetch = _alone,
    names: Names = _empty,
) -> TemplateSpec:
    """The file's keys, checked and frozen. Raises SpecError with every problem found.

    ``generates``: False for a template that only shows complete conversations. Then no role needs to generate, and the
    round may be missing, which means no meta template at all.
    ``fetch`` reads a file beside the template's, ``names`` lists a folder there, for kinds that name another file.
    """
    problems = Problems()
    keys = problems.mapping(raw, ())
    kind = problems.choice(keys.get("kind", "meta"), ("kind",), tuple(KEYS))
    if problems.found:
        raise SpecError(problems.found)
    problems.keys(keys, KEYS[kind], ())
    # A meta template's `begin` depends on its roles.
    values = problems.values(TemplateSpec, {**keys, "kind": kind}, (), [key for key in KEYS[kind] if key != "begin"])
    spec = TemplateSpec(name=name, digest=digest, **values)
    if kind == "meta":
        spec = read_meta(keys, spec, problems, generates=generates)
    elif kind == "prompter":
        spec = read_prompter(keys, spec, problems)
    elif kind == "jinja":
        spec = read_jinja(keys, spec, problems, fetch, names)
    if kind == "chat" or spec.api:
        for key in [key for key in TOOL_KEYS if key in keys]:
            problems.add((key,), f"has no effect where messages are sent: the target does that itself; remove {key}")
    else:
        check_tools(spec, problems)
    check_examples(spec, problems)
    if kind == "jinja" and not problems.found:
        spec = check_rendering(spec, keys, problems)
    if problems.found:
        raise SpecError(problems.found)
    return spec
