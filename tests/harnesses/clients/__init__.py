"""The clients of the table, one file each: ``CLIENTS`` holds one row, or one row for each way to run it."""
