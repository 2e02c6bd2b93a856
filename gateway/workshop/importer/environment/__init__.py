"""Loads a config with the Python of another environment, in which OpenCompass or AISBench is installed.

- ``loader``: starts that Python within limits of time and memory, and reads the values.
- ``program``: the program that it runs: loads configs with mmengine, and writes their values as JSON.
"""
