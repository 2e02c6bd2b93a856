"""The clients of the table, in ``CLIENTS`` of each file: ``sdks`` has the libraries, other files a benchmark each."""
