"""The colours of what processes and links do: the same in every picture, and none of them a strategy's.

They are Paul Tol's "muted" ones (personal.sron.nl/~pault), which the colour-blind can tell apart; strategies
have Okabe and Ito's.
"""

COMPUTING = "#332288"
FORWARD = "#8A7FD0"
"""A forward pass, where it is told from the backward pass, which has the colour of computing."""
UPDATE = "#44AA99"
SENDING = "#DDCC77"
RECEIVING = "#CC6677"
"""What arrives; in a breakdown all that is under way in the network and not sent by the worker."""
COLLECTIVE = "#882255"
WAITING = "#E4E4E4"
DOWN = "#F0B8A8"
CHECKPOINT = "#999999"
