"""Templates of ``kind: meta`` with ``turns: opencompass``: the prompt of OpenCompass, byte for byte.

- ``renderer``  from a dialogue to a prompt list, and by the LM parser to a prompt
- ``parsers``   OpenCompass's LM and API parsers: from a prompt list to a text, or to messages
"""
