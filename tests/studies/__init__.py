"""The studies that ship as commands."""
