"""Commands that need no training, one a file: parse and call."""
