"""Reports: their shape, their JSON, their text, and progress."""
