"""Values that cross packages, errors, and a subprocess with limits.

``call``         a client's request, parsed
``caller``       the client that makes a call, and its rights
``dialogue``     the conversation of a request
``answer_markers``  the markers of reasoning and tool calls, and the names of the tool call formats
``prompt``       what a template renders: segments, stops, notices
``exchange``     the request to a backend; the protocols ``Backend`` and ``Events``; the log of attempts
``events``       the events of an answer, and a whole answer
``words``        words of a message: quoted, escaped, shortened; the word that was probably meant
``errors``       the tree of errors
``text_splice``  direct forwarding of streamed text
``json_values``  nesting depth and texts of JSON values; places in values and schemas
``limited_process``  jobs in a subprocess with a time limit and a memory limit
``frozen``       the decorator ``dataclass`` for values created on every call
``fast_paths``   the switch of all fast paths
"""
