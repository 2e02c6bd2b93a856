"""Templates of ``kind: prompter``, which write the prompts of LazyLLM's prompters (``docs/spec/lazyllm.md``).

- ``template``      renders a dialogue as one string
- ``api_messages``  renders a dialogue as messages, for API models
- ``request``       sorts a dialogue into history, current turn, system messages and slot values
- ``instruction``   the texts of LazyLLM: the instruction template of each class, and the description of tools
- ``filler``        fills the instruction template for a request
- ``safe_fill``     fills the slots in one pass over the instruction template
- ``assembly``      writes earlier turns, and puts the parts of a prompt in order
- ``fast_layouts``  fast path: the text around the messages, stored for each order of roles
- ``segments``      text operations on segments
- ``json5``         writes JSON5 as LazyLLM's library does, and prints results of tools
- ``tokens``        special tokens, and the table of model families in ``families.json``
- ``dialects``      the differences between releases of LazyLLM, and the errors of LazyLLM
"""
