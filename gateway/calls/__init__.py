"""The steps of one call.

``route``     one configured model, wired
``prepare``   checks and rendering before a backend is opened
``run``       the open backend
``response``  the events on their way to the client
``timeline``  times and counts of the call
"""
