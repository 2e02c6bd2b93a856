"""Results of a run: ``results`` (the JSON file), ``stats``, ``table`` (Markdown), ``plot`` (SVG)."""
