"""The helper: a resident process that runs agents' hooks without the cost of imports.

It is a fork server. It has imported the modules of a hook and opened nothing: no database, no
provider, no thread. For each hook it forks a child, which takes over the caller's environment,
folder and standard streams, and runs the ordinary command line. So each child reads settings,
caller and permissions anew, and no rule of the service is written twice.
"""
