"""Evaluation runs: sending rows to models, and what their answers were. No module that serves a call imports this.

running    ``gateway run``
analysis   the rows of runs that have ended, and what they show
scores     what harnesses have written about their rows, and the calls of each row
reporting  ``gateway report``, ``why`` and ``recordings``
"""
