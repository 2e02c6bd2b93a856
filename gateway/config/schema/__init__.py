"""The settings, described as data.

``settings``       one row for each setting
``backend_kinds``  one row for each kind of backend, with its settings
``aggregators``    services that may change a model's provider, and how a target is pinned
``kinds``          how each kind of value is parsed and checked
``validation``     checks a parsed file against the rows
``json_schema``    the rows as JSON Schema, for editors
``names``          rules for names
"""
