"""The pages of recorded calls: ``/viewer/recordings``.

pages      the list, or the page of one call; reads the file
list       the values of the list: filters with their choices, and the beginning of each question and answer
call_view  the values of one call: outcome, facts, prompts, answers, and events on a time line
"""
