"""How settings files are read into the classes of ``config/snapshot.py``.

``settings``       the kinds of files, with the type of their content
``backend_kinds``  one row for each kind of backend, with its settings
``aggregators``    services that may change a model's provider, and how a target is pinned
``kinds``          how each kind of value is parsed and checked, and the rules for names
``validation``     reads a parsed file, and reports every problem
``json_schema``    the settings as JSON Schema, for editors, messages and the documentation
"""
