"""The verbs, on the command line and in Python."""
