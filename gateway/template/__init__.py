"""Templates turn dialogues into prompts. No module does I/O, except that ``huggingface/`` starts processes.

- ``base``         the protocol that every template implements
- ``registry``     makes the renderer of a checked template file, and runs the examples in the file
- ``spec``         the keys of a template file, as frozen dataclasses
- ``validation/``  checks the content of a template file, and reports every mistake
- ``meta/``        ``kind: meta`` with ``turns: natural``, which keeps the order of the client's messages
- ``opencompass/`` ``kind: meta`` with ``turns: opencompass``, which uses OpenCompass's parsers;
                   and ``kind: base``, which joins the messages by line breaks
- ``dataset/``     dataset prompts, which make the conversation of a row of a dataset
- ``lazyllm/``     ``kind: prompter``
- ``huggingface/`` ``kind: jinja``
- ``chat/``         ``kind: chat``
- ``roles``        finds the template's role for each OpenAI role
- ``tools``        the tools, tool calls and tool choice of a request
- ``stops``        the stop strings and token ids that end an answer
- ``layout``       fast path: the template's text around the messages, stored for each order of roles
"""
