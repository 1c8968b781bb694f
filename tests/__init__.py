"""A folder for each room of the source, and those that need several; support/ is what they share."""
