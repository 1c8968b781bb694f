"""Imported last by multiprocessing's fork server, whose processes do not look through all this for garbage.

To look, and to begin to, would also copy the pages that they share with it.
"""

import gc

gc.freeze()
gc.enable()
