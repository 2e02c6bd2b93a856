"""From a dialogue to a prompt, as a template file describes it. No I/O, except that ``huggingface/`` starts processes.

- ``base``         the protocol of templates
- ``registry``     from a checked file to its renderer, and the examples inside the file
- ``spec``         the keys of a template file, as frozen dataclasses
- ``validation/``  from the content of a file to these dataclasses, with every mistake
- ``meta/``        ``kind: meta``, messages in their own order
- ``opencompass/`` ``kind: meta`` with ``turns: opencompass``: OpenCompass's parsers; complete conversations
- ``lazyllm/``     ``kind: prompter``
- ``huggingface/`` ``kind: jinja``
- ``passthrough``  ``kind: chat``
- ``roles``        OpenAI roles and the template's roles
- ``messages``     checks of a dialogue, and the text of a message
- ``tools``        tools, calls and tool choice of a request
- ``stops``        the end of an answer
- ``layout``       fast path: a template's text around the messages, once for each order of roles
"""
