"""Compares two templates by the prompts that both make from the same conversations.

- ``cases``    the fixed conversations, each with a name
- ``sides``    the two sides, each a template or what makes prompts in another way
- ``compare``  compares both sides in all cases: the verdict, the first difference, the tokens
- ``causes``   known causes of a difference, each with advice
- ``engines``  other engines that render chat templates
- ``transformers_reference``  renders a dialogue with ``transformers``, so that the two prompts can be compared
"""
