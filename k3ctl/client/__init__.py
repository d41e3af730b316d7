"""The daemons of a pod as k3ctl sees them: HTTP, processes, run files."""
