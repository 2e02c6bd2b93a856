"""Read conversations as lines of JSON, and write the ids that mistral-common makes of each; null if it refuses one.

Runs in the environment of ``install``, with the name of a file of ``mistral-common`` as argument.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer


def main() -> None:
    """Answer each line at once."""
    tokenizer = MistralTokenizer.from_file(str(files("mistral_common") / "data" / sys.argv[1]))
    for line in sys.stdin:
        try:
            request = ChatCompletionRequest.model_validate({"messages": json.loads(line)})
            ids = tokenizer.encode_chat_completion(request).tokens
        except MistralCommonException:
            ids = None
        print(json.dumps(ids), flush=True)


if __name__ == "__main__":
    main()
