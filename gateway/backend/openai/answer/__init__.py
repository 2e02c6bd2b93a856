"""The response of an OpenAI-compatible server → events.

response_body  a response body, as JSON or as a stream
events         a chunk → events
fast_stream    plain text of a stream, forwarded unparsed
"""
