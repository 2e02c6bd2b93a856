"""Reads ``gateway.yaml``, templates and policies into one frozen ``Snapshot``.

``load``             reads all files and lists every problem
``library``          finds templates and policies by name
``files/``           reads files, parses YAML, and watches files for changes
``schema/``          describes each setting in one row, and checks files against the rows
``remedies``         what to do about an error
``sections/``        one file for each part of the configuration
``snapshot``         the frozen values of a whole configuration
"""
