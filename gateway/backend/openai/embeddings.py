"""The response of the embeddings endpoint, read as a whole and passed on as a document."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.backend.openai.answer.events import read_usage
from gateway.backend.openai.answer.response_body import parse_json
from gateway.backend.openai.error_mapping import error_in_body
from gateway.backend.openai.upstream_request import UpstreamRequest, read_body
from gateway.core.errors import UpstreamInvalidResponse
from metatemplate.values.events import Begun, Document, Event


class EmbeddingsEvents(UpstreamRequest):
    """An embeddings request and its events."""

    exhausted = False
    """True: the answer has been returned. See ``Events.exhausted``."""

    async def next_batch(self) -> Sequence[Event]:
        """Return the whole answer as one batch. See ``Events.next_batch``."""
        if self.exhausted:
            return ()
        self.exhausted = True
        body = parse_json(await read_body(self._http), self._endpoint.private)
        if not isinstance(body, dict):
            raise UpstreamInvalidResponse("the model's server sent JSON that is not an object")
        if (error := error_in_body(body, self._endpoint.private)) is not None:
            raise error
        if not isinstance(body.get("data"), list):
            raise UpstreamInvalidResponse("the model's server sent an embeddings answer without the list data")
        usage = read_usage(body.get("usage"), UpstreamInvalidResponse)
        begun = Begun(self._target), Document(body)
        return begun if usage is None else (*begun, usage)
