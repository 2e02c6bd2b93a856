"""Processes the text and the events of an answer, without I/O except for the subprocess of ``json_schema``.

``sse``                 a parser of ``text/event-stream``
``surrogates``          lone UTF-16 surrogates in JSON strings
``finish_reason``       engines' finish reasons, translated to OpenAI's
``stages``              the base classes of the steps between the events of a backend and those for the client
``stops``               the search for stop strings, and the cut
``prompt_logprobs``     log probabilities of a prompt's tokens
``reasoning``           separates reasoning and answer
``tool_calls``          formats of tool calls
``loops``               answers that end in a loop
``get_response``        finds the answer in the whole text of a model, as LazyLLM does
``json_schema``         structured output: the schema of a client, and the check of an answer
``output_parser``       content, reasoning and tool calls as deltas
``completion_builder``  joins events into one completion
``batches``             an event stream from an async iterator
"""
