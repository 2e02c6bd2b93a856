"""What a model's tokenizer allows of the model's policy for markers. Imported for models with a tokenizer only."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.backend.engines import declared_capabilities
from gateway.config.snapshot import MarkersPolicy, ModelSpec
from gateway.core.errors import ConfigError, Problem
from metatemplate.files.template_file import output_form
from metatemplate.markers.marker_set import MarkerSet
from metatemplate.markers.token_splits import disguised
from metatemplate.tokenizer import Tokenizer

if TYPE_CHECKING:
    from metatemplate.markers.prompt_tokens import PromptTokenizer

LOG = logging.getLogger("gateway.assembly")


def prompt_tokenizer(
    model: ModelSpec, markers: MarkerSet, tokens: Tokenizer | None, known: dict[object, PromptTokenizer]
) -> PromptTokenizer | None:
    """Return what encodes the model's prompts as token ids. None if the policy has no ``token_ids``.

    ``known``: the objects for other models, of which one is used again if it has the same tokenizer and tokens. Raises
    ``ConfigError`` if the tokenizer or a target does not support the action.
    """
    policy, reason, made = model.policy.markers, "", None
    if "token_ids" not in (policy.token_like, policy.text_like):
        return None
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
        if not made.splits_exactly(markers.token_like):
            reason = "the model's tokenizer changes a text that is tokenized in parts; use escape or reject"
    if reason:
        message = f"markers: token_ids is not possible for this model: {reason}"
        raise ConfigError((Problem(f"policies/{model.policy.name}.yaml", 0, "policy", message),))
    return made


def with_tokenizer(model: ModelSpec, markers: MarkerSet, tokens: Tokenizer) -> MarkersPolicy:
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
