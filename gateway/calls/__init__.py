"""The steps of one call.

``route``       one configured model, wired
``prepare``     checks and rendering before a backend is opened
``run``         the open backend
``response``    the events on their way to the client
``explain``     the explanation of a call: prompt, parameters, notices
``timeline``    times and counts of the call
``python_api``  templates, prompts and answers for Python programs, without a server
"""
