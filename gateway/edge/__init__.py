"""The HTTP surface: which path does what, in which form it answers.

app             the table of paths, and the errors of a request that no handler takes
asgi            the same as a Starlette application
authorize       client keys, and the models that a key allows
cancellation    ends the task of a request, and records why
endpoints/      the endpoints that take a call for a model
error_response  error responses in OpenAI's form
health          /health
host_header     protection against DNS rebinding
http1/          our own HTTP/1.1 server
http_request    one HTTP request as the handlers see it
metrics         /metrics
models          /v1/models
provenance      the x-gateway headers
state           what the handlers read: configuration, metrics, draining
"""
