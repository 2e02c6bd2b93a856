"""How does a source become a file? The steps of ``gateway import``, in this order.

``asked``: the words of the command line. ``drafts``: the source is read and its drafts are named, with ``folder`` for
those of a tokenizer. ``places``: where the files go. ``making``: each is compared (``verdict``), given ``examples``
and checked. Then ``places`` writes them.
"""
