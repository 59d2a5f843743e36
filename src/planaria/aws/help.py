"""The texts of `petctl --help` and `petctl VERB --help`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_COMMON = """
Everywhere:
  --region REGION      AWS region (default: the specs file's, AWS_REGION, AWS_DEFAULT_REGION, the profile's)
  --profile PROFILE    profile of ~/.aws (default AWS_PROFILE)
  --timeout SECONDS    how long one call of AWS may take (default 30); AWS_MAX_ATTEMPTS counts retries
  --json               answer as JSON
"""

_DRY = "  --dry-run            print what would be asked of AWS, with --json as JSON; asks nothing\n"
_NAME = "  NAME, --name NAME    the job\n"

OVERVIEW = """\
usage: petctl VERB [FLAGS]        dashes and underscores are the same; flags may stand before the verb

  run_job    start a job: upload its code, make its groups
  kill_job   end a job at once and remove what it has
  stop       drain a job: agents flush their newest commit, hosts go to zero
  scale      change the number of hosts of a job that runs
  wait       wait for a job's end; exit with its status
  status     one job: state, groups, result
  list       all jobs
  hosts      the hosts of a job
  logs       what the workers print
  upload     upload code and print where it is
  doctor     check a specs file against the account
  gc         remove what ended, expired or orphaned jobs have left

petctl VERB --help has the flags of a verb, with examples. Exit statuses: 0 done, 2 bad input, 69 AWS refused or did not
answer, 1 otherwise; `wait` exits with the job's own.
"""

VERB_HELP: Mapping[str, str] = {
    "run-job": """\
usage: petctl run_job --name NAME --size N --specs_file FILE [FLAGS] SOURCE [SCRIPT] [-- ARGUMENTS]

Upload SOURCE, claim the name, make launch templates and groups, and return: hosts do the rest, and go to zero by
themselves when the job has ended. If a call fails, everything is taken back.

  SOURCE               a script, a directory, s3://BUCKET/KEY (.py or .tar.gz), or with --no_upload a path in the container
  SCRIPT               the script in a directory or archive, relative to it
  ARGUMENTS            what the script gets, exactly as typed
  --name NAME          of the job; 1 to 63 letters, digits, dots, dashes and underscores
  --size N             number of hosts
  --min_size N         the job goes on with as few (default --size)
  --max_size N         `scale` may go up to as many (default --size)
  --specs_file FILE    instances, disks, networks and images; docs/aws.md has every field
  --no_upload          SOURCE is a path in the container
  --owner NAME         tag of everything that is made (default the user's name)
  --expires HOURS      from when on `gc` may end the job (default 168, at most ten years)
"""
    + _DRY
    + _COMMON
    + """
Examples:
  petctl run_job --size 2 --specs_file specs.json --name ann-job examples/imagenet/main.py -- --model-arch resnet101
  petctl run_job --size 2 --min_size 1 --max_size 4 --specs_file specs.json --name ann-job examples/imagenet main.py
  petctl run_job --size 2 --specs_file specs.json --name ann-job s3://my-bucket/my_dir.tar.gz my_script.py
  petctl run_job --dry-run --size 2 --specs_file specs.json --name ann-job --no_upload /workspace/echo.py
""",
    "kill-job": """\
usage: petctl kill_job NAME [FLAGS]

End a job at once and remove its groups, templates and token: the workers first, then the store. Nothing drains; `stop`
does. Files in S3 stay, and logs until they are too old. The same command again goes on where one was interrupted.

"""
    + _NAME
    + """\
  --purge              remove the logs as well
  --no_wait            do not wait until the groups are gone
"""
    + _DRY
    + _COMMON
    + """
Examples:
  petctl kill_job ann-job
  petctl kill_job --name ann-job --dry-run
""",
    "status": "usage: petctl status NAME [FLAGS]\n\n"
    + _NAME
    + _COMMON
    + "\nExamples:\n  petctl status ann-job\n  petctl status ann-job --json\n",
    "logs": """\
usage: petctl logs NAME [FLAGS]

"""
    + _NAME
    + """\
  -f, --follow         go on until the job has ended
  --rank N             only what this rank of all hosts printed
  --run RUN            of another run (default: the newest that has the name)
  --every SECONDS      between two looks (default 2)
"""
    + _COMMON
    + "\nExamples:\n  petctl logs -f ann-job\n  petctl logs ann-job --rank 0\n",
    "hosts": "usage: petctl hosts NAME [FLAGS]        list_hosts is the same\n\n"
    + _NAME
    + _COMMON
    + "\nExamples:\n  petctl hosts ann-job\n",
    "scale": """\
usage: petctl scale NAME --size N [FLAGS]

Change the number of hosts, within the sizes the job was started for. Hosts that go are drained first.

"""
    + _NAME
    + "  --size N             number of hosts\n"
    + _DRY
    + _COMMON
    + "\nExamples:\n  petctl scale ann-job --size 4\n",
    "stop": """\
usage: petctl stop --drain NAME [FLAGS]

Bring a job to zero hosts: agents flush their newest commit and leave, then the hosts end. `scale` goes on with the job: from
that commit where the specs file names an EFS volume, else from the beginning, for then the commit goes with the hosts.

"""
    + _NAME
    + """\
  --drain              wait until all have drained (the default)
  --no_wait            order it and return, instead; a store of its own stays until another `stop` has waited
  --every SECONDS      between two looks (default 5)
"""
    + _DRY
    + _COMMON
    + "\nExamples:\n  petctl stop --drain ann-job\n",
    "wait": """\
usage: petctl wait NAME [FLAGS]

Wait for a job's end and exit with its status. Progress goes to standard error.

"""
    + _NAME
    + """\
  --for SECONDS        give up after so long, with status 124
  --every SECONDS      between two looks (default 5)
"""
    + _COMMON
    + "\nExamples:\n  petctl wait ann-job && petctl kill_job ann-job\n",
    "list": "usage: petctl list [FLAGS]\n" + _COMMON + "\nExamples:\n  petctl list --region us-west-2\n",
    "gc": """\
usage: petctl gc [FLAGS]

Remove jobs that have ended, have expired, or lost the parameter that claims their name. Everything is found by its tags.
Which jobs these are takes a look at AWS, so --dry-run prints what happens to each of them, as to one named JOB.

  --list               only say which
"""
    + _DRY
    + _COMMON
    + "\nExamples:\n  petctl gc --list\n  petctl gc\n",
    "doctor": """\
usage: petctl doctor --specs_file FILE [FLAGS]

Check credentials, images (the container's too, if it is in ECR), subnets, security groups, the bucket, the instance profile
and EFS. Changes nothing.

  --specs_file FILE    as for run_job
"""
    + _COMMON
    + "\nExamples:\n  petctl doctor --specs_file specs.json\n",
    "upload": """\
usage: petctl upload SOURCE [s3://BUCKET/KEY] [FLAGS]

Upload a script or a directory, as run_job does, and print its address and hash.

  s3://BUCKET/KEY      where to, .tar.gz for a directory (default: by its hash, below the specs file's bucket and prefix)
  --specs_file FILE    needed where no address is given
"""
    + _DRY
    + _COMMON
    + "\nExamples:\n  petctl upload --specs_file specs.json examples/imagenet\n  petctl upload main.py s3://my-bucket/main.py\n",
}
