"""LazyLLM's prompters as a library: what its conformance cases need beside the text that the gateway writes.

- ``prompter``         Alpaca, Chat and Empty with LazyLLM's arguments and refusals
- ``messages``         their dictionary forms, for OpenAI and Anthropic
- ``checks``           LazyLLM's refusals of instructions, histories and inputs that no request can bring
- ``legacy_prompter``  the older ``Prompter``
- ``modules``          the prompter of a local model
- ``names``            the tokens of a model by its name, from ``names.json``
- ``tool_calls``       LazyLLM's own split of a finished answer
"""
