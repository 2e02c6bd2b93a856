"""Templates of ``kind: meta`` with ``turns: opencompass``: the prompt of OpenCompass, byte for byte.

- ``renderer``     a dialogue by the LM parser
- ``prompt_list``  a dialogue as OpenCompass's list of turns, its sections and rounds
- ``role_table``   roles by name, and the role of a turn
- ``lm_parser``    from the list to a text
- ``api_parser``   from the list to messages
"""
