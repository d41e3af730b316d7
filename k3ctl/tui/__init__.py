"""The console: the pod on a terminal, live or as it was recorded."""
