"""What holds in both engines."""
