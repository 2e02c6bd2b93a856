"""Files of a configuration.

``reader``        reads each file once and collects problems
``yaml``          parses strict YAML and remembers lines
``secret_files``  reads secrets from variables and files
``watcher``       polls for changes
``locate``        assigns a problem with a model's files to the line that names them
"""
