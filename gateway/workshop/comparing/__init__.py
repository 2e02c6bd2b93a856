"""``gateway render``, ``gateway diff`` and ``gateway parity``.

render          the verb
diff            the verb
parity          the verb
parity_options  its options
comparison      the inputs: the template, its reference and the tokenizer
side_by_side    the inputs of ``gateway render --as``
rendering_server  a server that renders, as a reference
engine_bos      the BOS that engines add to prompts
report          the result as text or JSON
"""
