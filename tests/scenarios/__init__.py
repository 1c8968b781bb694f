"""What may be said of a job, and what is refused."""
