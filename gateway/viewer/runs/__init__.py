"""The pages about runs: the report of one run, and the differences of two. They show what
``gateway.evaluate.analysis`` finds.

pages        the pages
source       where the rows come from: the recordings of this gateway, or for ``gateway view`` files
view_server  the pages of ``gateway view``, and who may look at them
findings     the report of a run, and the comparison of two, with the rows behind each number
"""
