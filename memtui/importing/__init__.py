"""Import the operation logs of other systems, as companies of their own."""
