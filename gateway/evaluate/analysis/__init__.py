"""Reads runs that have ended: what the answers of a run were. The serving packages never import this package.

rows          the rows of a run, read from an output file of ``gateway run``
recordings    the rows of a run, and single calls, read from a file of recordings
client_text   the texts of a client's request
pairing       pairs the rows of two harnesses by the texts of their questions
answer_class  the class of each answer: whole, cut, empty, looping …
tool_check    compares tool calls with the tools of their request
scores        scores of answers, and bootstrap intervals
differences   the differences between two rows, in the order of cause and effect
sampling      the first different token of two answers: a near tie, or a wide gap
why           the first differences of two runs
prove         requests that prove these differences, and their effects
report        the counts of a run, as text and as JSON
"""
