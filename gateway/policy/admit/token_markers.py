"""What a model's tokenizer allows of the model's policy for markers. Imported for models with a tokenizer only."""

from __future__ import annotations

import logging
from dataclasses import replace

from gateway.backend.engines import declared_capabilities
from gateway.config.snapshot import MarkersPolicy, ModelSpec
from gateway.core.errors import ConfigError, Problem
from metatemplate.files.template_file import output_form
from metatemplate.markers.marker_set import MarkerSet
from metatemplate.markers.token_splits import disguised, splits_exactly
from metatemplate.tokenizer import Tokenizer

LOG = logging.getLogger("gateway.assembly")


def with_tokenizer(model: ModelSpec, markers: MarkerSet, tokens: Tokenizer | None) -> MarkersPolicy:
    """Return the model's policy for markers, with ``normalize`` if the model's tokenizer normalizes texts.

    Such a tokenizer reads changed forms of a marker as the marker: a marker with the character that ``escape`` inserts,
    with full-width letters, in other letter case or with accents. These forms are then markers too, and are refused,
    because the tokenizer may undo a change.

    Raises ``ConfigError`` if the policy has ``token_ids``, and the tokenizer or a target does not support this action.
    """
    policy = model.policy.markers
    if "token_ids" in (policy.token_like, policy.text_like):
        reason = ""
        if tokens is None:
            reason = "token_ids needs the model's tokenizer; set the model's setting tokenizer"
        elif output_form(model.template) == "messages":
            reason = "the model's targets accept only messages, no token ids; use escape or reject"
        elif not all(declared_capabilities(target).token_prompts for target in model.targets):
            reason = "a target of the model does not accept token ids; use escape or reject"
        elif not splits_exactly(tokens, markers.token_like):
            reason = "the model's tokenizer changes a text that is tokenized in parts; use escape or reject"
        if reason:
            message = f"markers: token_ids is not possible for this model: {reason}"
            raise ConfigError((Problem(f"policies/{model.policy.name}.yaml", 0, "policy", message),))
    if tokens is None or policy.token_like == "allow" or policy.normalize != "none":
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
