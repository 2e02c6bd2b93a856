"""Templates of ``kind: prompter``: the text that LazyLLM's prompters write (``docs/spec/lazyllm.md``).

- ``template``      renders a dialogue: the class that the registry builds
- ``request``       sorts a dialogue into history, current turn, system messages and slot values
- ``instruction``   LazyLLM's own texts: the instruction template of each class, and the description of tools
- ``safe_fill``     fills the slots in one pass over the template (the default)
- ``exact_fill``    fills the slots as LazyLLM does, by searching the filled text (``exact: true``)
- ``assembly``      writes earlier turns, and puts all parts into order
- ``fast_layouts``  fast path: the words of a conversation, laid out once for each order of roles
- ``segments``      text operations on labelled segments
- ``json5``         reads and writes JSON5 as LazyLLM's library does
- ``tokens``        special tokens, and the table of model families in ``families.json``
- ``dialects``      the releases of LazyLLM and their differences, and its errors
"""
