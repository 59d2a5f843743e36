"""What launcher, agent and worker agree on: variable names, file formats, control messages, exit statuses.

Pure values and pure functions. No I/O, no clock, no environment: whoever calls passes them in.
"""
