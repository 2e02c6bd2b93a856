"""Reads and checks the files of templates and dataset prompts, and reports every mistake.

- ``reader``           reads each file once and collects problems
- ``yaml``             parses strict YAML and remembers lines
- ``template_file``    reads a template file and runs its examples; finds the shipped ones
- ``prompt_file``      reads the file of a dataset prompt and renders its examples
- ``template_models``  finds the templates for the name of a model
- ``template``         checks the content of a template file, and returns a ``TemplateSpec``
- ``meta``             ``kind: meta``
- ``prompter``         ``kind: prompter``
- ``jinja``            ``kind: jinja``
- ``tools``            the keys ``tools`` and ``thinking``
- ``file_types``       how pydantic reads the types of the keys
- ``problems``         collects mistakes while values are read
"""
