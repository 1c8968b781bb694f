"""Studies that ship as commands: how accurate predictions are, what was published, and closed forms."""
