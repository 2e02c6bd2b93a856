"""Runs chat templates in a sandbox.

``environment``          the sandboxed Jinja environment, as ``transformers`` sets it up
``limits``               the same environment with limits, for renders in the gateway's process
``compiled_template``    parses, inspects, compiles and renders a chat template
``subprocess_renderer``  renders in a subprocess with a time limit and a memory limit
``render_job``           the job of the subprocess
"""
