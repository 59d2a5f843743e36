"""`planaria dashboard`: a web page of one's runs, served to a browser on this machine.

It draws the picture that `planaria.insight` makes and decides nothing about a job. Whoever asks reads only; an order to drain
or to stop needs the token of the run, typed into the page. The page is three kinds of files that a browser takes as they are:
no build step, nothing from elsewhere, and no foreign text ever becomes markup.
"""
