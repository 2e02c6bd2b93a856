"""``speaks: embedded``: a model computed in this process, on the CPU, from its Hugging Face folder.

    backend, params, options, work    an exchange becomes work; events come back
    cache                             which models are loaded
    engine, generation                the thread and its steps; one choice from prompt to end
    llama, sampling                   tokens → logits → token
    architecture, weights, text       what the folder's files say

The first two rows are plain Python; the others need numpy and tokenizers, and are imported when a model is loaded.
"""

from gateway.backend.embedded.backend import EmbeddedBackend
from gateway.backend.embedded.cache import EngineCache
from gateway.backend.embedded.params import PARAMS

__all__ = ["PARAMS", "EmbeddedBackend", "EngineCache"]
