"""Where experts live: pod descriptions, placement maps and the policies behind them. No torch."""
