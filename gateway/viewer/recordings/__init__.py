"""The pages of recorded calls: ``/viewer/recordings``.

pages      the list with its filters, and the page of one call
call_view  the values of one call: facts, prompts, answers, and events on a time line
"""
