"""The pages that people look at: on the gateway below ``/viewer``, and in ``gateway view``.

view        ``gateway view``
viewer      answers the requests below ``/viewer``: finds the page, and its values as HTML or JSON
access      identifies the visitor: by a client key, or by the printed token
page        one page: the request for it, its values, and the response
page_threads  the threads that read and write pages, which no call uses
home        / and /viewer: the models
prompt      the exact prompt of a conversation, and the differences of two
recordings  the recorded calls
runs        the report of a run, and the comparison of two
templating  renders templates and reads assets
exact_text  a text as HTML that shows white space and special tokens, and that can be copied exactly
charts      pictures as SVG
"""
