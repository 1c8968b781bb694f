"""What real runs are made of, without a whole run."""
