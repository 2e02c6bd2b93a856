"""Reading ``gateway.yaml``, templates and policies into one frozen ``Snapshot``.

``load``       reads all files and lists every problem
``library``    finds templates and policies by name
``files/``     reading, YAML, watching
``schema/``    the rows of settings and the check of a file against them
``sections/``  one file for each part of the configuration
``snapshot``   the frozen result
"""
