"""``gateway parity`` and ``gateway diff``.

parity          the verb
parity_options  its options
diff            the verb
comparison      the inputs: the template, its reference and the tokenizer
engine_bos      the BOS that engines add to prompts
report          the result as text or JSON
"""
