"""Commands beside `run` and `list`, one a file: parse and call."""
