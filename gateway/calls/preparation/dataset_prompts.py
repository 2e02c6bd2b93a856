"""Renders the dataset prompt that a request names for the model of the request.

The rules are in ``docs/spec/opencompass.md``, sections 2 to 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.calls.route import Route
from gateway.core.call import Call, PromptReference
from gateway.core.errors import InvalidValue, RequestError
from gateway.wire.requests import read_dataset_messages
from metatemplate.errors import InputError
from metatemplate.templates.chat.messages import check_dialogue
from metatemplate.values.dialogue import DATASET_PARAM, DEFAULT_OPTIONS, Dialogue, RenderOptions
from metatemplate.values.frozen import dataclass
from metatemplate.values.prompt import Notice, Prompt
from metatemplate.values.words import in_ascii, quoted, suggest

if TYPE_CHECKING:
    from metatemplate.datasets.prompt import DatasetPrompt
    from metatemplate.datasets.prompt_list import PromptItems
    from metatemplate.opencompass.parsers import ParserMode


@dataclass(frozen=True, slots=True)
class DatasetConversation:
    """The conversation of a call with a dataset prompt, or of one turn of a call with several turns."""

    dialogue: Dialogue
    prompt: Prompt | None = None
    """The rendered prompt. None if the model's template must still render the dialogue."""
    notices: tuple[Notice, ...] = ()
    prompt_id: str = ""
    """The dataset prompt's name and hash, ``name@sha256:12hex``. Empty if the call names no dataset prompt."""


def render_dataset_prompt(route: Route, call: Call, reference: PromptReference) -> DatasetConversation:
    """Return the conversation of a call that names a dataset prompt. Raises ``InvalidValue`` for a wrong reference."""
    prompt = dataset_prompt(route, reference)
    items = prompt.generation(reference.variables, reference.examples)
    options = call.dialogue.options if call.dialogue is not None else DEFAULT_OPTIONS
    return make_conversation(route, prompt, reference, items, options, "ppl" if options.whole else "gen")


def dataset_prompt(route: Route, reference: PromptReference) -> DatasetPrompt:
    """Return the dataset prompt that a request names. Raises ``InvalidValue`` for an unknown id or a wrong version."""
    prompt = route.prompts.get(reference.id)
    if prompt is None:
        raise InvalidValue(
            f"no dataset prompt {quoted(reference.id)} in prompts/{suggest(reference.id, route.prompts)}",
            param=f"{DATASET_PARAM}.id",
        )
    if reference.version and reference.version.removeprefix("sha256:") != prompt.spec.digest:
        raise InvalidValue(
            f"dataset prompt {prompt.spec.name} has the version {prompt.spec.digest}, not {quoted(reference.version)}; "
            "send this version, or leave the version out",
            param=f"{DATASET_PARAM}.version",
        )
    return prompt


def name_prompt(error: RequestError | InputError, prompt_id: str) -> None:
    """Change an error about ``messages`` so that it names the dataset prompt: the request itself has no messages."""
    if prompt_id and error.param is not None and error.param.startswith("messages"):
        place = "" if error.param in error.message else f"{error.param}: "
        error.message = f"the messages of prompt {prompt_id.partition('@')[0]}: {place}{error.message}"
        error.param = DATASET_PARAM


def make_conversation(
    route: Route,
    prompt: DatasetPrompt,
    reference: PromptReference,
    items: PromptItems,
    options: RenderOptions,
    mode: ParserMode = "gen",
) -> DatasetConversation:
    """Return the conversation of a call for a text, a prompt list or messages.

    A template of the kind ``meta`` renders a prompt list directly, by OpenCompass's rules. For other templates, the
    prompt list is converted to messages.
    """
    names = prompt.unfilled(reference.variables, reference.examples)
    notices = tuple([Notice("unfilled_column", f"{prompt.spec.name}: {in_ascii(name)}") for name in names])
    if prompt.lacks_examples(reference.examples):
        notices = (*notices, Notice("no_examples", prompt.spec.name))
    if answer := prompt.answer_column_in_prompt(reference.variables, reference.examples):
        notices = (*notices, Notice("answer_in_prompt", f"{prompt.spec.name}: {in_ascii(answer)}"))
    prompt_id = f"{prompt.spec.name}@sha256:{prompt.spec.digest}"
    made: Prompt | None = None
    if prompt.makes_messages:
        dialogue = Dialogue(read_dataset_messages(list(items)), options)
    else:
        assert route.prompt_lists is not None  # the route has dataset prompts
        made = route.prompt_lists.write(items, mode)
        if made.messages is None:
            dialogue = Dialogue((), options)
            check_dialogue(dialogue)
        else:
            dialogue = Dialogue(read_dataset_messages([dict(message) for message in made.messages]), options)
            made = made if route.template.spec.kind == "meta" else None
    return DatasetConversation(dialogue=dialogue, prompt=made, notices=notices, prompt_id=prompt_id)
