"""Execution of chat templates.

``environment``          the sandboxed Jinja environment, as ``transformers`` sets it up
``compiled_template``    one chat template: parsed, inspected, compiled and rendered
``subprocess_renderer``  renders in a subprocess with a time and a memory limit
``worker``               the program of that subprocess
"""
