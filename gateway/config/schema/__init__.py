"""Settings as data.

``settings``    one row for each setting
``kinds``       the kinds of values: how each is parsed and checked
``validation``  checks a parsed file against the rows
``names``       rules for names, and suggestions
"""
