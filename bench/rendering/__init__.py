"""Renders per second in process: ``render_gateway`` and the reference packages on the same ``inputs``.

Another Python runs ``render_lazyllm``, ``render_opencompass`` and ``render_transformers``; ``python_build`` compares
the two builds. These modules and ``inputs`` import nothing else of this repository at module level.
"""
