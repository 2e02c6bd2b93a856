"""The endpoints that take a call for a model.

answer  runs a call and writes the model's answer, whole or as a stream
call    reads and admits a call, has it answered, and records it once
render  the answer of /v1/render
table   path, reader and writer of each endpoint
"""
