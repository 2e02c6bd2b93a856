"""The pages about runs: the report of one run, and the differences of two. They show what
``gateway.evaluate.analysis`` finds.

pages     finds the page of a path
run_list  the list of runs
report    the report of a run, and the list of its rows
why       why two runs differ
pair_list the list of the rows that differ
row       one row of a run, or of two runs side by side
links     the addresses of the pages, and the rows of one page
reader    reads runs, and keeps what was found about them
source    the runs in the recordings of this gateway
files     the runs of ``gateway view``
findings  the report of a run, and the comparison of two, with the rows behind each number
"""
