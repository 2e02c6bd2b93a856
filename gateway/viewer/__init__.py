"""The pages that people look at: on the gateway below ``/viewer``, and in ``gateway view``.

viewer      answers the requests below ``/viewer``: finds the page, and its values as HTML or JSON
access      finds out who looks: sign-in with a client key, or with the printed token
session     signed cookies and tokens
home        / and /viewer: the models
recordings  /viewer/recordings: the recorded calls
page        one page: the request for it, its values, and the response
templating  renders templates and reads assets
charts      pictures as SVG
"""
