"""Screen 4: the records of the active binding."""
