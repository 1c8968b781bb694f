"""`lockstep systems`: the systems of the articles, each a scenario of its own.

table.py has a row for each, in the words of system.py; page.py makes the tables of docs/systems.md.
"""

from lockstep.studies.systems.system import Also, Published, System
from lockstep.studies.systems.table import SYSTEMS

__all__ = ["SYSTEMS", "Also", "Published", "System"]
