"""The pages about runs: the report of one run, and the differences of two. They show what
``gateway.evaluate.analysis`` finds.

pages     the pages
source    the runs in the recordings of this gateway
files     the runs of ``gateway view``
findings  the report of a run, and the comparison of two, with the rows behind each number
"""
