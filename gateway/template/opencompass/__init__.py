"""Templates of ``kind: meta`` with ``turns: opencompass``. The prompt is byte for byte the prompt of OpenCompass.

- ``renderer``  turns a dialogue into a prompt list, and the prompt list into a prompt with the LM parser
- ``prompt_lists``  origins, notices and errors of a dataset's prompt lists
- ``parsers``   OpenCompass's LM parser, which makes a text of a prompt list, and API parser, which makes messages
"""
