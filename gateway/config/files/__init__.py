"""Reads, parses and watches the files of a configuration.

``reader``    reads each file once and collects problems
``yaml``      parses strict YAML and remembers lines
``watcher``   polls for changes
``key_file``  adds entries to the file of client keys, and removes them
"""
