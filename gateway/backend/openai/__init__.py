"""Backends for OpenAI-compatible servers.

base, completions, chat   the backends; each makes the body of a request
request_body, bos         the fields that both bodies share; the begin-of-sequence token
control_fields            fields by which a request could steer an engine
neutral_values            values that cannot change an answer, left out where the target does not know the field
upstream_request          one request, from sending to the release of the connection
response_body             a response body → events, for JSON and for streams
events, fast_stream       a chunk → events; plain text of a stream, forwarded unparsed
embeddings                the response of the embeddings endpoint
error_mapping             a server's error → one of the gateway's errors
engine_tokenizer          the engine's own count of a prompt's tokens
tokenizer_client          the tokenizer endpoints of an engine
health                    asks a server whether it is healthy
"""
