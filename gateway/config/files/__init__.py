"""Watches the files of a configuration, and edits the file of client keys.

``watcher``   polls for changes
``key_file``  adds entries to the file of client keys, and removes them
"""
