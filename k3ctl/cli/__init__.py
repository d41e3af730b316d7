"""The command line: one file a noun; output.py owns stdout, stderr and exit codes."""
