"""Builds a template or prompt file from a draft: compares it with the source, adds examples, and checks it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gateway.cli.terminal import progress
from gateway.core.errors import ConfigError, GatewayError, Problem
from gateway.workshop.importer.draft import SUBSETS, Draft, Reference, bos_notes
from gateway.workshop.importer.yaml_writer import write_yaml
from gateway.workshop.parity.cases import Case, matrix
from gateway.workshop.parity.causes import CAUSES
from gateway.workshop.parity.compare import CaseResult, compare
from metatemplate.datasets.spec import PromptSpec
from metatemplate.errors import MetaTemplateError
from metatemplate.files import yaml
from metatemplate.files.prompt_file import read_prompt
from metatemplate.files.reader import AddProblem, Files
from metatemplate.files.template_file import read_template
from metatemplate.prompters.filler import slots_in
from metatemplate.templates.base import Template
from metatemplate.templates.registry import build, dialogue_of
from metatemplate.templates.spec import Example, TemplateSpec
from metatemplate.values.dialogue import Dialogue

SYSTEM_MESSAGE = {"role": "system", "content": "Answer with a number."}
EXAMPLE_QUESTION = {"role": "user", "content": "1+1=?"}
FOLLOW_UP = (EXAMPLE_QUESTION, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2=?"})
EXAMPLE_ANSWER = {"role": "assistant", "content": "4"}
"""The last message of the examples of a template that renders only complete conversations."""
CONVERSATIONS = ((EXAMPLE_QUESTION,), FOLLOW_UP, (SYSTEM_MESSAGE, EXAMPLE_QUESTION), (SYSTEM_MESSAGE, *FOLLOW_UP))
"""The conversations of the examples. A conversation that the reference excludes or refuses is left out."""
SpecType = TypeVar("SpecType", TemplateSpec, PromptSpec)
ReadSpec = Callable[[Files, Path, str, AddProblem], SpecType | None]
MAX_EXAMPLES = 3
MAX_DIFFERENCES = 3
"""The largest number of differences that are shown one by one."""
CONTEXT = 24
"""The number of characters shown of each text, starting at the first difference."""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A checked template or prompt file."""

    name: str
    """The name of the YAML file without ``.yaml``, which is also the name of the folder for ``files``."""
    text: str
    files: tuple[tuple[str, bytes], ...]
    """The relative paths and the contents of further files that the template needs."""
    report: tuple[str, ...]
    """Lines for standard error: the result of the comparison, and the settings that were not carried over."""


def build_file(draft: Draft) -> ImportedFile:
    """Make and check the file of a draft. Raises ``ConfigError`` if a prompt differs from the source's prompt."""
    with tempfile.TemporaryDirectory(prefix="gateway-import-") as scratch:
        if draft.is_prompt:
            lines = [_not_compared(draft)]
            text = write_yaml(draft, lines)
            _check(draft, text, Path(scratch), read_prompt)
            return _file(draft, text, lines)
        spec = _check(draft, write_yaml(draft), Path(scratch), read_template)
        template = build(spec)
        reference = draft.reference or (draft.port(spec) if draft.port is not None else None)
        examples = _examples(template, reference, draft)  # first, so that a template that never ends fails here
        lines = _verdict(template, reference, draft)
        if reference is not None:
            lines.append(f"The prompts of the examples were written by {reference.name}.")
        lines += _ends(template)
        if bos := bos_notes(examples[0].get("prompt", ""), template.spec.bos):
            draft = replace(draft, notes=(*bos, *draft.notes))
        complete = replace(draft, keys={**draft.keys, "examples": examples})
        text = write_yaml(complete, lines)
        _check(complete, text, Path(scratch), read_template)
    return _file(draft, text, lines)


def _file(draft: Draft, text: str, lines: Sequence[str]) -> ImportedFile:
    report = [f"{draft.name}: imported from {draft.origin}", *lines, *[f"note: {note}" for note in draft.notes]]
    return ImportedFile(name=draft.name, text=text, files=draft.files, report=tuple(report))


def _not_compared(draft: Draft) -> str:
    return f"Parity: not compared; the prompts of the examples were written by {draft.examples_by}."


def _check(draft: Draft, text: str, scratch: Path, read: ReadSpec[SpecType]) -> SpecType:
    """Write the file and its folder to ``scratch``, and read both as ``gateway check`` does.

    Raises an error if the file is invalid, or if its values differ from those of the draft.
    """
    path = scratch / f"{draft.name}.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    for name, data in draft.files:
        beside = scratch / draft.name / name
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
    files = Files(scratch)
    spec = read(files, path, draft.name, files.add_problem(path))
    if spec is None:
        what = "prompt" if draft.is_prompt else "template"
        found = [replace(problem, file=f"{draft.origin}, its {what}", line=0) for problem in files.in_order()]
        raise ConfigError(tuple(found))
    if yaml.parse(path.read_bytes(), path.name).value != draft.keys:
        raise GatewayError(f"{draft.origin}: the written file is not equal to the source; report a bug")
    return spec


def _examples(template: Template, reference: Reference | None, draft: Draft) -> list[dict[str, Any]]:
    """Return examples with the reference's prompts. Raises ``ConfigError`` if no conversation can be rendered."""
    examples: list[dict[str, Any]] = []
    refusals: list[str] = []
    # A prompter makes a string or messages, as its targets need.
    renderers = [template, build(template.spec.for_messages())] if template.spec.kind == "prompter" else [template]
    for messages in CONVERSATIONS:
        if reference is not None and any(one.matches(_dialogue(messages)) for one in reference.excluded):
            continue
        if template.spec.scores_only:
            messages = (*messages, EXAMPLE_ANSWER)
        for variables in _variables(template.spec):
            dialogue = dialogue_of(Example(tuple(messages), variables=variables), whole=template.spec.scores_only)
            result: dict[str, Any] = {}
            for renderer in renderers:
                try:
                    prompt = renderer.render(dialogue)
                    if prompt.messages is not None:
                        result["sent"] = [dict(message) for message in prompt.messages]
                    else:
                        result["prompt"] = prompt.text if reference is None else reference.side.render(dialogue).text
                except (GatewayError, MetaTemplateError) as error:
                    refusals.append(error.message)
            if not result:
                continue
            given = {"variables": variables} if variables else {}
            examples.append({"messages": list(messages), **given, **result})
            break
    if not examples:
        why = refusals[0] if refusals else "the format excludes all example conversations"
        raise ConfigError((Problem(draft.origin, 0, "", f"no example can be rendered: {why}"),))
    return examples[:MAX_EXAMPLES]


def _variables(spec: TemplateSpec) -> list[dict[str, str]]:
    """Return the variables to try for the slots of a prompter: first no variables, then a text for every slot."""
    if spec.prompter is None:
        return [{}]
    named = {slot: f"(the {slot})" for slot in slots_in(spec.prompter) if slot != spec.prompter.input_slot}
    return [{}, named] if named else [{}]


def _dialogue(messages: Sequence[Mapping[str, str]], variables: Mapping[str, str] | None = None) -> Dialogue:
    return dialogue_of(Example(tuple(messages), variables=variables or {}))


def _ends(template: Template) -> list[str]:
    """Return a line that lists the texts that end an answer; none if the server of an API model ends it."""
    spec = template.spec
    if spec.makes_messages or spec.scores_only:
        return []
    unknown = "unknown; list the texts under stop"
    if spec.kind == "prompter":
        unknown += " for models that take a string (an API model ends its answers itself)"
    for variables in _variables(template.spec):
        with suppress(MetaTemplateError):
            stops = template.render(_dialogue((EXAMPLE_QUESTION,), variables)).metadata.stops
            return [f"Answers end at: {', '.join(map(repr, stops)) or unknown}"]
    return []


# ---------------------------------------------------------------- comparison with the source's own prompts


def _verdict(template: Template, reference: Reference | None, draft: Draft) -> list[str]:
    """Return lines about the result of the comparison. Raises ``ConfigError`` that lists the differences, if any."""
    if reference is None:
        return [_not_compared(draft)]
    tokens = template.spec.jinja.special_tokens.values() if template.spec.jinja is not None else ()
    cases: list[Case] = []
    left_out: Counter[str] = Counter()
    for case in matrix([text for text in tokens if text]):
        applicable = [one for one in reference.excluded if not (case.whole and one.open_only)]
        if names := [one.name for one in applicable if one.matches(case.dialogue)]:
            left_out[names[0]] += 1
        else:
            cases.append(case)
    with progress(f"comparing {draft.name}", cases) as compared:
        results = compare(template, reference.side, compared)
    open_results = [one for one in results if not one.case.whole]
    wrong = [one for one in open_results if one.verdict in ("differs", "refused by ours")]
    same = sum(one.verdict in ("same", "refused by both") for one in open_results)
    if wrong or not same:
        raise ConfigError((Problem(draft.origin, 0, "", "\n  ".join(_failure(wrong, same, reference))),))
    return _success(results, same, left_out, reference)


def _success(results: Sequence[CaseResult], same: int, left_out: Counter[str], reference: Reference) -> list[str]:
    lines = [f"Parity: {same} of {same} conversations give the same prompt, byte for byte, as {reference.name}."]
    if left_out:
        lines.append(f"Not compared: {'; '.join([f'{name} ({number})' for name, number in left_out.items()])}.")
    if accepted := [one.case.name for one in results if one.verdict == "refused by the reference"]:
        lines.append(f"The source refuses these conversations, but the new template does not: {', '.join(accepted)}.")
    if any(one.is_different for one in results if one.case.whole and one.verdict != "not compared"):
        lines.append("Complete conversations (for perplexity) are not the same text as in the source.")
    return lines


def _failure(wrong: list[CaseResult], same: int, reference: Reference) -> list[str]:
    names = ", ".join([one.case.name for one in wrong]) or "nothing could be compared"
    total = same + len(wrong)
    lines = [f"{len(wrong)} of {total} conversations give another prompt than {reference.name}: {names}"]
    for one in wrong[:MAX_DIFFERENCES]:
        if one.verdict == "differs":
            texts = [text.encode()[one.at :].decode(errors="replace") for text in (one.ours.text, one.reference.text)]
            ours, theirs = [repr(text[:CONTEXT]) for text in texts]
            lines.append(f"{one.case.name}: from byte {one.at} the template has {ours}, and the source has {theirs}")
        else:
            lines.append(f"{one.case.name}: refused by the template ({one.ours.refused})")
    lines += [CAUSES[cause] for cause in dict.fromkeys([cause for one in wrong for cause in one.causes])]
    lines += [reference.hint] if reference.hint else []
    subsets = {word: one for word, one in SUBSETS.items() if word != "system"}
    matching = [[word for word, one in subsets.items() if one.matches(case.case.dialogue)] for case in wrong]
    if wrong and all(matching):
        options = " ".join([f"--without {word}" for word in subsets if any(word in words for words in matching)])
        lines.append(f"to exclude these conversations from the comparison, add {options}")
    return lines
