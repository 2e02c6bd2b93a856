"""Values that cross packages.

``dialogue``        the conversation to render
``prompt``          what a template renders: segments, stops, notices
``events``          the events of an answer, and a whole answer
``answer_markers``  the markers of reasoning and tool calls, and the names of the tool call formats
``words``           words of a message: quoted, escaped, shortened; the word that was probably meant
``json_values``     nesting depth and texts of JSON values; places in values and schemas
``kinds``           kinds of values in files and requests, as marks for pydantic
``frozen``          the decorator ``dataclass`` for values created on every call
``fast_paths``      the switch of all fast paths
"""
