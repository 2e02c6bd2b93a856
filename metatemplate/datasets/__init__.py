"""Dataset prompts: from a row of a dataset to a text, or to the turns that a model's template writes.

The package implements OpenCompass's and AISBench's prompt templates (``docs/spec/opencompass.md`` 1, 2, 3, 8 and 9).

- ``spec``         the keys of a prompt file
- ``validation``   checks a prompt file
- ``answer_columns``  finds the columns of the answer in a file that does not name them
- ``prompt_list``  strings, turns and section markers, and the columns in their text
- ``template``     string templates, dialogue templates, and one template for each label
- ``messages``     templates written as OpenAI messages
- ``few_shot``     the examples before the question
- ``multi_turn``   dialogues of several turns, from lists of questions and answers
- ``turn_requests``  one request for each answer of a dialogue
- ``multimodal``   content parts from tagged text
- ``prompt``       renders a prompt file for the variables of a request
"""
