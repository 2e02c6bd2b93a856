"""Reads requests and writes responses in OpenAI's JSON, without I/O.

body_schemas     the JSON schemas of request bodies
error_object     errors as OpenAI's error object
inlined_file     the content of a media file in a message, and what is recorded in its place
json             parses request bodies, and refuses unsafe JSON; writes any value as JSON
logprobs         log probabilities in the formats of completions and chat
message_content  messages and prompts
redaction        removes texts that match patterns from recordings and the log
request_fields   the fields of requests, with their ranges
requests         turns a body into a ``Call``
responses        writes answers as bodies or stream events
responses_api    requests and answers of ``/v1/responses``
stored_events    events as JSON for the cache and for recordings
tokenizer_requests  the bodies of /tokenize and /detokenize
validation       checks the fields of a body
"""
