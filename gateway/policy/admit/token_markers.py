"""What a model's tokenizer allows of the model's policy for markers. Imported for models with a tokenizer only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.backend.engines import declared_capabilities
from gateway.config.schema.backend_kinds import BACKEND_KINDS
from gateway.config.snapshot import MarkersPolicy, ModelSpec, TargetSpec
from gateway.core.errors import ConfigError, Problem
from metatemplate.files.template_file import output_form
from metatemplate.markers.marker_set import MarkerKind, MarkerSet
from metatemplate.markers.role_boundaries import SafeRenderer
from metatemplate.markers.token_splits import disguised
from metatemplate.tokenizer import Tokenizer
from metatemplate.values.prompt import MarkerAction

if TYPE_CHECKING:
    from metatemplate.markers.prompt_ids import PromptIds
    from metatemplate.markers.prompt_tokens import PromptTokenizer

LOG = logging.getLogger("gateway.assembly")


def with_tokenizer(
    model: ModelSpec, markers: MarkerSet, tokens: Tokenizer | None, known: dict[object, PromptTokenizer]
) -> tuple[MarkersPolicy, PromptTokenizer | None]:
    """Return the model's policy for markers as its tokenizer allows it, and what encodes its prompts as token ids.

    The latter is None if all prompts of the model are sent as text. ``known``: those of other models, of which one is
    used again if it has the same tokenizer and tokens. Raises ``ConfigError`` if the tokenizer or a target does not
    support token ids.
    """
    made = _prompt_tokenizer(model, markers, tokens, known)
    policy = model.policy.markers if tokens is None else _normalizing(model, markers, tokens)
    if made is not None and _sends_ids(model):
        policy = _policy_for_ids(model, policy, markers, made)
    return policy, made


def prompt_ids(model: ModelSpec, tokens: PromptTokenizer, renderer: SafeRenderer) -> PromptIds:
    """Return what makes the token ids of every prompt of a model with ``prompt: ids``. Blocks.

    Raises ``ConfigError`` if a prompt would have no BOS or two, or if the tokenizer reads a harmless prompt differently
    in parts than as a whole.
    """
    from metatemplate.markers.prompt_ids import PromptIds

    made = PromptIds(tokens, renderer, whole=model.policy.markers.token_like == "allow")
    if fault := made.fault(adds_bos=_may_add_bos(model.targets[0])):
        message = f"prompt: ids is not possible with this tokenizer: {fault}; or write prompt: text at the targets"
        raise ConfigError((Problem(str(model.tokenizer or model.targets[0].path), 0, "tokenizer", message),))
    return made


def _prompt_tokenizer(
    model: ModelSpec, markers: MarkerSet, tokens: Tokenizer | None, known: dict[object, PromptTokenizer]
) -> PromptTokenizer | None:
    policy = model.policy.markers
    by_policy = "token_ids" in (policy.token_like, policy.text_like)
    if not by_policy and not _sends_ids(model):
        return None
    _check_targets(model)
    reason, made = "", None
    if tokens is None:
        reason = "token_ids needs the model's tokenizer; set the model's setting tokenizer"
    elif output_form(model.template) == "messages":
        reason = "the model's targets accept only messages, no token ids; use escape or reject"
    elif not all(declared_capabilities(target).token_prompts for target in model.targets):
        reason = "a target of the model does not accept token ids; use escape or reject"
    else:
        from metatemplate.markers.prompt_tokens import PromptTokenizer

        added = tokens.added_tokens()
        texts = tuple([one for one in (*markers.token_like, *markers.text_like) if one in added])
        key = id(tokens), texts
        made = known[key] = known.get(key) or PromptTokenizer(tokens, texts)
        if by_policy and not made.splits_exactly(markers.token_like):
            reason = "the model's tokenizer changes a text that is tokenized in parts; use escape or reject"
    if reason:
        message = f"markers: token_ids is not possible for this model: {reason}"
        raise ConfigError((Problem(f"policies/{model.policy.name}.yaml", 0, "policy", message),))
    return made


def _may_add_bos(target: TargetSpec) -> bool:
    adds = declared_capabilities(target).adds_bos if target.adds_bos is None else target.adds_bos
    return adds is not False


def _sends_ids(model: ModelSpec) -> bool:
    """Return whether a target of the model has ``prompt: ids``."""
    return any(target.prompt == "ids" for target in model.targets)


def _check_targets(model: ModelSpec) -> None:
    """Raise ``ConfigError`` with every reason for which the model's targets cannot have ``prompt: ids``."""
    first, messages = model.targets[0], output_form(model.template) == "messages"
    has_tokenizer = model.tokenizer is not None or BACKEND_KINDS[first.speaks].in_process
    problems = list[Problem]()
    for target in model.targets if _sends_ids(model) else ():
        reasons = {
            f"is {target.prompt}, but {first.prompt} at the first target; write the same at all targets of the model": (
                target.prompt != first.prompt
            ),
            "ids needs the model's tokenizer; set the model's setting tokenizer, or write text": not has_tokenizer,
            "ids needs a template that makes one string, and this one makes messages; write text": messages,
            "ids needs engines that all add a BOS, or none, because the template has bos: none; set adds_bos, or write "
            "bos: text in the template": (model.template.bos == "none" and _may_add_bos(target) != _may_add_bos(first)),
            f"ids is not possible with engine: {target.engine}, which accepts no token ids; write text": (
                target.prompt == "ids" and not declared_capabilities(target).token_prompts
            ),
        }
        problems += [Problem(target.label, 0, "prompt", reason) for reason, is_true in reasons.items() if is_true]
    if problems:
        raise ConfigError(tuple(problems))


def _policy_for_ids(
    model: ModelSpec, policy: MarkersPolicy, markers: MarkerSet, tokens: PromptTokenizer
) -> MarkersPolicy:
    """Return the policy of a model with ``prompt: ids``: ``escape`` becomes ``token_ids``, which changes no text.

    ``escape`` stays for a kind of markers of which one is no token, if the tokenizer changes such a marker in parts.
    """

    def action(kind: MarkerKind, wanted: MarkerAction, texts: Sequence[str]) -> MarkerAction:
        if wanted != "escape" or tokens.splits_exactly(texts):
            return "token_ids" if wanted == "escape" else wanted
        LOG.warning(
            "model %s: markers.%s: escape still changes the texts of clients, because the tokenizer cannot read a "
            "marker that is no token in parts",
            model.name,
            kind,
        )
        return wanted

    return replace(
        policy,
        token_like=action("token_like", policy.token_like, markers.token_like),
        text_like=action("text_like", policy.text_like, markers.text_like),
    )


def _normalizing(model: ModelSpec, markers: MarkerSet, tokens: Tokenizer) -> MarkersPolicy:
    """Return the model's policy for markers, with ``normalize`` if the model's tokenizer normalizes texts.

    Such a tokenizer reads changed forms of a marker as the marker: a marker with the character that ``escape`` inserts,
    with full-width letters, in other letter case or with accents. These forms are then markers too, and are refused,
    because the tokenizer may undo a change.
    """
    policy = model.policy.markers
    if policy.token_like == "allow" or policy.normalize != "none":
        return policy
    if form := disguised(tokens, markers.token_like):
        LOG.warning(
            "model %s: the tokenizer normalizes texts, and reads %s as a marker; the gateway uses markers.normalize: "
            "nfkc, and refuses markers in place of changing them; keys with allow_markers may send them",
            model.name,
            ascii(form),
        )
        return replace(policy, normalize="nfkc")
    return policy
