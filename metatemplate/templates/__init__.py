"""Templates turn dialogues into prompts: what all kinds of templates have in common. No module does I/O.

- ``base``         the protocol that every template implements
- ``registry``     makes the renderer of a checked template file, and runs the examples in the file
- ``spec``         the keys of a template file, as frozen dataclasses
- ``chat/``         ``kind: chat``
- ``roles``        finds the template's role for each OpenAI role
- ``tools``        the tools, tool calls and tool choice of a request
- ``stops``        the stop strings and token ids that end an answer
- ``layout``       fast path: the template's text around the messages, stored for each order of roles
"""
