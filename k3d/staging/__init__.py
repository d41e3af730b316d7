"""Banks of a pod: building, sending, verifying, repairing and clearing them away."""
