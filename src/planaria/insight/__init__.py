"""What a run looks like from outside: `planaria status`, `top`, `why` and `logs`, for one that runs and one that has ended.

`gather.py` asks agents (through their UNIX sockets, or over HTTP) and reads the folders of `--run-dir`; `picture.py` makes one
picture of what many nodes told, which the commands and the web page only draw. Nothing here changes a run, nothing decides
anything for one, and what others wrote is read as text of strangers: it may be wrong, torn, or meant to do harm.
"""
