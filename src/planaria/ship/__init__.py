"""Code on its way from a laptop to a node: named, packed, fetched, verified, unpacked, and handed to `planaria run`.

`fetch_and_run` and the entry point of the image live here; `petctl` packs and describes jobs with the same files. It is the
standard library alone, but for `s3://`, where boto3 is imported late. It starts the launcher by exec and never imports it,
and it decides nothing about nodes, machines or clouds.
"""
