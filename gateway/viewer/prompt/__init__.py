"""The pages Prompt and Compare.

pages        the pages that render a conversation for one model, or for two models to compare
view         the values of a rendered prompt
differences  the differences of two prompts, to the byte
"""
