"""`petctl`: elastic jobs on EC2, from a laptop, with an end to the bill.

What is to be made is a pure plan (`specs`, `names`, `plan`); `apply` carries it out through boto3 and takes it back when a
call fails. A host knows what `hosts` holds and finds everything else out when it boots (`boot`): who is in the job, where
the store is, the token. This room starts no training and opens no rendezvous, and nothing else in the package imports it.
"""
