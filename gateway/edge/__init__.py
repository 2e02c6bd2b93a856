"""The HTTP interface: the paths, and the answer of each path.

about/          the paths that answer with facts about the gateway and its models
app             the table of paths, and the errors of requests that have no handler
asgi            the HTTP interface as a Starlette application
cors            the headers that allow web pages to call the gateway
host_header     the check of the Host header, against DNS rebinding
http1/          our own HTTP/1.1 server
http_request    one HTTP request as the handlers see it
session         signed sessions of browsers, and tokens
"""
