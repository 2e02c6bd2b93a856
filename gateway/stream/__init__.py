"""Text and events of an answer, without I/O.

``sse``                 parser of ``text/event-stream``
``surrogates``          lone UTF-16 surrogates in JSON strings
``finish_reason``       engines' finish reasons in OpenAI's terms
``stop_search``         search for stop strings in sliced text
``stop_cutter``         cutting of events at stops
``token_alignment``     positions of tokens in the text
``reasoning``           splitting of reasoning and answer
``tool_calls``          formats of tool calls
``output_parser``       content, reasoning and tool calls as deltas
``completion_builder``  one completion from events
``batches``             an event stream from an async iterator
"""
