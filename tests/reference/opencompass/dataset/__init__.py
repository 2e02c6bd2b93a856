"""Dataset prompts: from a sample of a dataset to a conversation or a text (``docs/spec/opencompass.md`` 1–3, 9).

- ``prompt_list``   filling fields and inserting shots, in strings and in lists of turns
- ``template``      string templates, dialogue templates, and one template per label
- ``few_shot``      the samples shown before the question, and the prompts made with them
- ``multi_turn``    one request per turn of a dialogue
- ``chat``          a sample as OpenAI messages
- ``multimodal``    content parts from tagged text
"""
