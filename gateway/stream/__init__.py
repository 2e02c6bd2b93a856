"""Processes the text and the events of an answer, without I/O except for the subprocess of ``json_schema``.

``sse``                 a parser of ``text/event-stream``
``surrogates``          lone UTF-16 surrogates in JSON strings
``finish_reason``       engines' finish reasons, translated to OpenAI's
``prompt_logprobs``     log probabilities of a prompt's tokens
``loops``               answers that end in a loop
``json_schema``         structured output: the schema of a client, and the check of an answer
``completion_builder``  joins events into one completion
``batches``             an event stream from an async iterator
"""
