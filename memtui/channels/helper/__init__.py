"""The helper: a resident process that runs agents' hooks with everything imported already.

It is a fork server. It has imported what a hook needs and opened nothing: no database, no provider,
no thread. For each hook it forks a child, which takes over the environment, the folder and the
standard streams of whoever called, and runs the ordinary command line in them. So settings, caller
and permissions are read anew by each, and no rule of the service stands in two places.
"""
