"""The panes of the console, one a file."""
