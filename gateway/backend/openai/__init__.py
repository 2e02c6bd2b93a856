"""Backends for OpenAI-compatible servers.

base, completions, chat   the backends; each makes the body of a request
request/                  the fields of a request
upstream_request          one request, from sending to the release of the connection
answer/                   a response → events
embeddings                the response of the embeddings endpoint
error_mapping             a server's error → one of the gateway's errors
engine_tokenizer          the engine's own count of a prompt's tokens
tokenizer_client          the tokenizer endpoints of an engine
health                    asks a server whether it is healthy
"""
