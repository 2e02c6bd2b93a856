"""The verbs that read runs.

report       ``gateway report``
why          ``gateway why``
proof        sends the requests of ``gateway why --prove``
recordings   ``gateway recordings``; ``recordings_merge``, ``recordings_export``, ``recordings_prune``: its other verbs
selection    which recorded calls a verb lists, exports or removes
source       the rows of the run that the command line names
lines        a report as lines of text
"""
