"""OpenCompass and AISBench beyond the gateway's two parsers: lists of prompts, checks, chat parsers, wrappers.

``dialect``      where the two packages differ
``prompt_list``  the operations of a PromptList
``parsers``      the gateway's LM and API parsers, with the input and the checks of the reference
``chat_parser``  the parsers for OpenAI messages
``wrappers``     from a parser's result to a model's request
"""
