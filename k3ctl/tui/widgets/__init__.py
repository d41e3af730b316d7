"""What panes are made of: drawings, tables, the line for a prompt."""
