"""Scores that an evaluation harness has written, and the recorded calls that they belong to.

row          a row of a harness' own file
read         finds the form of a file, or of the files below a folder, and yields its rows
lm_eval      samples of lm-eval (``--log_samples``)
evalscope    reviews of EvalScope
inspect_ai   logs of inspect-ai as JSON
opencompass  results of OpenCompass and AISBench, with details
promptfoo    output of promptfoo as JSON
join         finds the calls of each row
"""
