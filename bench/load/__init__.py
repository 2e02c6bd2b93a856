"""Load generators: ``load_generator`` (wrk or a Python loop), ``stream_client``, ``litellm_sdk``, ``http_client``."""
