"""Templates of ``kind: meta`` with ``turns: opencompass``, and of ``kind: base``: OpenCompass's prompts, byte for byte.

- ``renderer``  turns a dialogue into a prompt list, and the prompt list into a prompt with the LM parser
- ``prompt_lists``  origins, notices and errors of a dataset's prompt lists
- ``joined``    ``kind: base``, which is OpenCompass's prompt without a meta template
- ``parsers``   OpenCompass's parsers: from a prompt list, the LM parser makes a text, and the API parser messages
"""
