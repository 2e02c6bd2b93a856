"""Values that cross packages, and errors.

``call``         a client's request, parsed
``caller``       the client that makes a call, and its rights
``exchange``     the request to a backend; the protocols ``Backend`` and ``Events``; the log of attempts
``errors``       the tree of errors
``text_splice``  direct forwarding of streamed text
"""
