"""What agents' clients call at moments of a run: to be told what is remembered, to leave a note."""
