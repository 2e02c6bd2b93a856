"""Jobs in a subprocess with a time limit and a memory limit. A job is a function of a module that the process imports.

``process``  starts the subprocess, gives it jobs, and kills it at a limit
``worker``   the program of the subprocess
"""
