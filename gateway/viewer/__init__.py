"""The pages that people look at: on the gateway below ``/viewer``, and in ``gateway view``.

viewer         answers the requests below ``/viewer``: finds the page, and its values as HTML or JSON
page           one page: the request for it, its values, and the response
templating     renders templates and reads assets
charts         pictures as SVG
exact_text     a text as HTML that shows white space and special tokens, and that can be copied exactly
prompt_pages   the pages that render a conversation for one model, or for two models to compare
prompt_view    the values of a rendered prompt
prompt_differences  the differences of two prompts, to the byte
"""
