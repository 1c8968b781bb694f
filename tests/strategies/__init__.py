"""What each strategy does, in virtual time."""
