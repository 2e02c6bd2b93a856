"""Templates of ``kind: prompter``: the text that LazyLLM's prompters write (``docs/spec/lazyllm.md``).

- ``template``      renders a dialogue: the class that the registry builds
- ``request``       sorts a dialogue into history, current turn, system messages and slot values
- ``instruction``   the instruction template of each class, before its slots are filled
- ``safe_fill``     fills the slots in one pass over the template (the default)
- ``exact_fill``    fills the slots as LazyLLM does, by searching the filled text (``exact: true``)
- ``history``       writes earlier turns
- ``tools``         announces the request's tools
- ``assembly``      puts all parts into order
- ``fast_layouts``  fast path: the words of a conversation, laid out once for each order of roles
- ``segments``      text operations on labelled segments
- ``json5``         reads and writes JSON5 as LazyLLM's library does
- ``tokens``        special tokens, and the table of model families in ``families.json``
- ``dialects``      the releases of LazyLLM and their differences
- ``errors``        the error of a refused request
"""
