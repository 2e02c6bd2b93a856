"""What does ``transformers`` itself make of a dialogue? The reference for our own rendering, where it is installed.

Only for comparing (``gateway parity``): nothing is bounded here, and it takes a second to import. The template gets
the very messages that ours gets (``variables.py``), and refuses what ours refuses before anything is rendered.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jinja2.exceptions import TemplateError as JinjaError

from gateway.core.dialogue import Dialogue
from gateway.core.errors import InvalidValue, TemplateError
from gateway.core.prompt import Prompt, PromptMetadata
from gateway.template.huggingface.folder.special_tokens import TOKENS
from gateway.template.huggingface.renderer import JinjaTemplate
from gateway.template.huggingface.sandbox.script import Script, told
from gateway.template.huggingface.variables import check_fields, messages_of
from gateway.template.messages import check_dialogue, check_open_turn
from gateway.template.spec.template import JinjaSpec, TemplateSpec
from gateway.template.tools import tools_of
from gateway.template.validation.jinja import TOOL_USE

PACKAGE = "transformers"
CLOCK = "strftime_now"
"""What a template asks for the day; ``transformers`` tells it today's, and nobody can tell it another."""


def installed() -> str:
    """The version of ``transformers``; empty: there is none."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


class TransformersTemplate:
    """Renders dialogues with ``apply_chat_template``. No network: it is given all it needs."""

    def __init__(self, spec: TemplateSpec) -> None:
        """Raises ``TemplateError`` for a template that cannot be compiled, ``ImportError`` without the package."""
        from transformers import PreTrainedTokenizerBase

        if spec.jinja is None:
            raise ValueError("a jinja template without its chat template passed the checks")
        self.spec = spec
        self._jinja: JinjaSpec = spec.jinja
        self._scripts = dict(zip([name for name, _ in self._jinja.sources], JinjaTemplate(spec).scripts, strict=True))
        named = {name: text for name, text in self._jinja.special_tokens.items() if name in TOKENS}
        others = {name: text for name, text in self._jinja.special_tokens.items() if name not in TOKENS}
        # A tokenizer without a vocabulary: the text of a prompt needs none.
        self._tokenizer: Any = PreTrainedTokenizerBase(**named)
        self._always = {**others, **self._jinja.kwargs}

    def render(self, dialogue: Dialogue) -> Prompt:
        """See ``base.Template``."""
        text = self._text(dialogue, opens=not dialogue.continue_final)
        return Prompt(text, PromptMetadata(bos=self.spec.bos, bos_text=self.spec.bos_text))

    def whole(self, dialogue: Dialogue) -> str:
        """The complete conversation, no turn left open."""
        return self._text(dialogue, opens=False)

    def _text(self, dialogue: Dialogue, *, opens: bool) -> str:
        if dialogue.tools and self.spec.tools is None:
            check_dialogue(dialogue)  # says what is missing
        check_open_turn(dialogue)
        tools = list(tools_of(dialogue)) or None
        script = self._script(bool(tools))
        check_fields(dialogue, script)
        messages = messages_of(dialogue, self._jinja)
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    chat_template=script.source,
                    tokenize=False,
                    add_generation_prompt=opens,
                    continue_final_message=dialogue.continue_final,
                    **self._always,
                )
            )
        except JinjaError as error:
            if type(error) is JinjaError:  # ``raise_exception`` raises the base class itself
                raise _refusal(error) from None
            raise _failure(error) from None
        except ValueError as error:
            if dialogue.continue_final:
                raise InvalidValue(f"transformers refuses: {told(error)}", param="continue_final_message") from None
            raise _failure(error) from None
        except Exception as error:  # a template's own TypeError and the like, as in ``script.py``
            raise _failure(error) from None

    def _script(self, with_tools: bool) -> Script:
        if with_tools and TOOL_USE in self._scripts:
            return self._scripts[TOOL_USE]
        return next(iter(self._scripts.values()))


def _refusal(error: Exception) -> InvalidValue:
    return InvalidValue(f"this model's chat template refuses the conversation: {told(error)}", param="messages")


def _failure(error: Exception) -> TemplateError:
    return TemplateError(f"{type(error).__name__}: {told(error)}")
