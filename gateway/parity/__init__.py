"""Comparison of two templates: the prompts that both make of the same conversations.

- ``cases``    the conversations: a fixed matrix of names and messages
- ``sides``    the two sides: templates, or functions that make a text
- ``compare``  both sides over all cases: a verdict, the first difference, the tokens
- ``causes``   known causes of a difference, each with advice
"""
