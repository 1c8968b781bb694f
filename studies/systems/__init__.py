"""`lockstep systems`: the systems of the articles, each a scenario of its own.

table.py has a row for each; page.py makes the tables of docs/systems.md.
"""

from lockstep.studies.systems.table import SYSTEMS, Also, Published, System

__all__ = ["SYSTEMS", "Also", "Published", "System"]
