"""What is trained, on which samples, and how long a gradient takes."""
