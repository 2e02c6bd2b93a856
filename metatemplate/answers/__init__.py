"""Reads the text and the events of an answer, without I/O.

``stages``          the base classes of the steps between the events of a model and the answer
``stops``           the search for stop strings, and the cut
``reasoning``       separates reasoning and answer
``tool_calls``      formats of tool calls
``get_response``    finds the answer in the whole text of a model, as LazyLLM does
``output_parser``   content, reasoning and tool calls as deltas
``output_parsing``  chooses how the answer is parsed
"""
