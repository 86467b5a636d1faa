"""Reports as web pages: each one file that opens offline, and their figures for papers."""
