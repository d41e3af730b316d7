"""What a pod keeps on disk: its home, its secret, state.db and telemetry.db. No torch."""
